"""`pykarpenter plan`: which machines pending pods would get, from manifests alone."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import click

from pykarpenter.api.manifests import Document, ManifestError
from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.cli.inputs import documents
from pykarpenter.cli.plan_checks import InputChecks
from pykarpenter.cli.plan_output import as_json, as_table, as_yaml
from pykarpenter.cli.sources import live_documents, record_live
from pykarpenter.cloud.catalog import RESERVATION_ID, Catalog, CatalogError, parse_entries, read_catalog
from pykarpenter.cloud.provider import ProviderTraits
from pykarpenter.core.packing import PackingEngine
from pykarpenter.core.packing_settings import PackingSettings, ShouldStop
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.snapshot import ClusterSnapshot
from pykarpenter.kube.config import ConfigError
from pykarpenter.kube.errors import ApiError
from pykarpenter.runtime.plugins import UnknownProvider
from pykarpenter.runtime.settings import BadSettings, load_settings
from pykarpenter.state.manifests import ManifestCluster, gather

# Flags of Karpenter's settings that change where pods go.
_SETTING_FLAGS = {
    "preference-policy": "Respect or Ignore preferences of pods.",
    "min-values-policy": "Strict or BestEffort minValues.",
    "ignore-dra-requests": "true leaves pods with resource claims alone.",
    "feature-gates": "Name=bool pairs, comma-separated.",
    "scheduler-config": "YAML or JSON with podTopologySpread.defaultConstraints.",
    "packing-effort": "off, normal or thorough search for cheaper plans.",
    "cross-pool-cost": "true lets a cheaper pool win over a heavier one.",
}

# The same by the name that one looks for first.
_SHORT_FLAGS = {"packing-effort": ("--effort",)}

LEFT_OUT = 2
BAD_INPUT = 1


def _settings(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, text in reversed(_SETTING_FLAGS.items()):
        short = _SHORT_FLAGS.get(name, ())
        function = click.option(f"--{name}", *short, name.replace("-", "_"), default=None, help=text)(function)
    return function


@click.command("plan")
@click.option("-f", "--filename", "sources", multiple=True, help="Manifest file or folder; - is stdin.")
@click.option("--kubeconfig", default="", help="The live cluster, when no file is given.")
@click.option("--context", "context", default="", help="The kubeconfig's context.")
@click.option("--provider", default="kwok", show_default=True, help="Whose instance types a live cluster has.")
@click.option("--catalog", default=None, help="Instance types: kwok (default), demo or a JSON file.")
@click.option("--deadline", type=click.FloatRange(min=0), default=None, help="Stop after this many seconds.")
@click.option("--strict", is_flag=True, help="Refuse kinds and fields that this command does not know.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@_settings
def command(
    sources: tuple[str, ...],
    kubeconfig: str,
    context: str,
    provider: str,
    catalog: str | None,
    deadline: float | None,
    strict: bool,
    output: str,
    **flags: str | None,
) -> int:
    """Show which machines pods would get, and why some would get none.

    Reads manifests, folders of them or snapshots; without -f the live cluster, to which nothing is written.
    Exit status: 0 when every pod has a place, 2 when some are left out, 1 on bad input.
    """
    try:
        given = {name.replace("_", "-"): value for name, value in flags.items() if value is not None}
        checks = InputChecks(strict)
        read = checks.passing(documents(sources)) if sources else _live(kubeconfig, context, provider, given)
        snapshot, settings = _read(read, catalog, strict, given, checks.warnings)
    except (ManifestError, CatalogError, BadSettings, ConfigError, ApiError, UnknownProvider) as error:
        click.echo(str(error), err=True)
        return BAD_INPUT
    started = time.perf_counter()
    plan = PackingEngine().pack(snapshot, settings, _watchdog(started, deadline))
    seconds = time.perf_counter() - started
    click.echo(_shown(plan, snapshot, seconds, output))
    return LEFT_OUT if plan.unschedulable or plan.ignored or plan.deferred else 0


def _live(kubeconfig: str, context: str, provider: str, flags: Mapping[str, str]) -> Iterable[Document]:
    """The live cluster, recorded and then read like a file."""
    listed, warnings = asyncio.run(record_live(kubeconfig, context, provider, flags))
    for line in warnings:
        click.echo(f"warning: {line}", err=True)
    return live_documents(listed)


def _read(
    found: Iterable[Document], catalog: str | None, strict: bool, flags: dict[str, str], odd: list[str]
) -> tuple[ClusterSnapshot, PackingSettings]:
    cluster = gather(found, strict)
    recorded = (cluster.recording or {}).get("settings")
    known = {str(k): str(v) for k, v in recorded.items()} if isinstance(recorded, dict) else {}
    loaded, warnings = load_settings({**known, **flags}, os.environ)
    types = read_catalog(catalog) if catalog is not None else _recorded_types(cluster) or read_catalog("kwok")
    rules = types.label_rules
    traits = ProviderTraits("plan", (), label_rules=rules, reservation_id_label=RESERVATION_ID)
    # Pools of any class are planned for: the catalogue stands in for whatever cloud they belong to.
    settings = replace(loaded.packing(traits), managed_class_kinds=None)
    snapshot = cluster.snapshot(types.types, _now(cluster), rules)
    # Only now: what is wrong is told alone, without what is merely odd.
    for line in [*odd, *warnings, *types.warnings, *dict.fromkeys(cluster.warnings)]:
        click.echo(f"warning: {line}", err=True)
    if cluster.skipped:
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(cluster.skipped.items()))
        click.echo(f"skipped: {listed}", err=True)
    return snapshot, settings


def _recorded_types(cluster: ManifestCluster) -> Catalog | None:
    recording = cluster.recording or {}
    entries = recording.get("instanceTypes")
    return parse_entries(entries, "snapshot") if isinstance(entries, list) else None


def _now(cluster: ManifestCluster) -> float:
    recorded = (cluster.recording or {}).get("time")
    if isinstance(recorded, int | float):
        return float(recorded)
    return parse_timestamp(recorded) if isinstance(recorded, str) else time.time()


def _watchdog(started: float, deadline: float | None) -> ShouldStop:
    """Stops at the deadline, and tells those who wait longer than a second that work goes on."""
    shown = 0

    def should_stop() -> bool:
        nonlocal shown
        elapsed = time.perf_counter() - started
        if elapsed >= shown + 1:
            shown = int(elapsed)
            sys.stderr.write(f"planning: {shown} s\n")
        return deadline is not None and elapsed >= deadline

    return should_stop


def _shown(plan: LaunchPlan, snapshot: ClusterSnapshot, seconds: float, output: str) -> str:
    if output == "json":
        return as_json(plan, seconds)
    if output == "yaml":
        return as_yaml(plan, seconds).rstrip("\n")
    return as_table(plan, snapshot, seconds)
