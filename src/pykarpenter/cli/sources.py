"""Where a command that explains gets its cluster from: a snapshot file or manifests, or the live cluster.

A live cluster is recorded first and then read like a file, so both ways give the same answer.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from pykarpenter.api import kinds
from pykarpenter.api.manifests import Document, ManifestError
from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.cli.inputs import documents
from pykarpenter.cli.recording import record
from pykarpenter.cloud.catalog import RESERVATION_ID, Catalog, CatalogError, parse_entries, read_catalog
from pykarpenter.cloud.provider import ProviderTraits
from pykarpenter.core.disruption.back_off import read as read_back_off
from pykarpenter.core.disruption.candidates import World
from pykarpenter.core.disruption.settings import DisruptionSettings, Memory
from pykarpenter.core.draining import DISRUPTED_TAINT
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.repair import InvalidPolicies, RepairPolicy
from pykarpenter.core.snapshot import ClusterSnapshot
from pykarpenter.kube.client import HttpApi
from pykarpenter.kube.config import ConfigError, load_config
from pykarpenter.kube.dry_run import DryRunApi
from pykarpenter.kube.errors import ApiError
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.runtime.plugins import UnknownProvider, load_plugin
from pykarpenter.runtime.settings import BadSettings, Settings, load_settings
from pykarpenter.state.manifests import gather

T = TypeVar("T")

# Settings that change what is decided; the same flags as `run` has.
DECISION_FLAGS = (
    "feature-gates",
    "preference-policy",
    "min-values-policy",
    "ignore-dra-requests",
    "legacy-node-repair",
    "min-saving",
    "eviction-price",
    "protect-unparsable-do-not-disrupt",
)


class CannotRead(click.ClickException):
    """Why there is no cluster to look at; one line each."""

    exit_code = 1


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A cluster at one instant, and the settings to decide with."""

    snapshot: ClusterSnapshot
    packing: PackingSettings
    disruption: DisruptionSettings
    # Objects that are there although no decision looks at them: Nodes that do not say yet what they are, ended pods.
    nodes: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()

    def world(self) -> World:
        return World(self.snapshot, self.disruption, _memory(self.snapshot))


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say where to look."""
    for name in reversed(DECISION_FLAGS):
        function = click.option(f"--{name}", name.replace("-", "_"), default=None, help="As for `run`.")(function)
    for option in reversed(
        (
            click.option("-f", "--filename", "files", multiple=True, help="Snapshot or manifests; - is stdin."),
            click.option("--kubeconfig", default="", help="The live cluster, when no file is given."),
            click.option("--context", default="", help="The kubeconfig's context."),
            click.option("--provider", default="kwok", show_default=True, help="Whose instance types to ask for."),
            click.option("--catalog", default="kwok", show_default=True, help="Instance types for bare manifests."),
        )
    ):
        function = option(function)
    return function


def given(flags: Mapping[str, str | None]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in flags.items() if value is not None}


def load(
    files: tuple[str, ...], kubeconfig: str, context: str, provider: str, catalog: str, flags: Mapping[str, str]
) -> Source:
    """Raises CannotRead with what is wrong."""
    try:
        if files:
            found: Iterable[Document] = documents(files)
        else:
            listed, warnings = asyncio.run(record_live(kubeconfig, context, provider, flags))
            found = live_documents(listed)
            for line in warnings:
                click.echo(f"warning: {line}", err=True)
        return _source(found, catalog, flags)
    except (ManifestError, CatalogError, BadSettings, ConfigError, UnknownProvider, ImportError) as error:
        raise CannotRead(str(error)) from error
    except InvalidPolicies as error:
        raise CannotRead(f"ClusterSnapshot: {error}") from error
    except ApiError as error:
        raise CannotRead(f"the cluster does not answer: {error}") from error


async def record_live(
    kubeconfig: str, context: str, provider: str, flags: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """The live cluster as a List; nothing is written to it."""
    clock = SystemClock()
    plugin = load_plugin(provider)
    settings, _ = load_settings(flags, os.environ, plugin.settings)
    async with HttpApi(load_config(clock, kubeconfig=kubeconfig, context=context), clock=clock) as api:
        look = DryRunApi(api)
        built = await plugin.build(look, clock, settings.provider)
        return await record(look, built.provider, clock.now(), flags)


def live_documents(listed: Mapping[str, Any]) -> list[Document]:
    """A recording as documents that are told apart by what they are, not by a number that the user never saw."""
    found = []
    for index, item in enumerate(listed["items"], 1):
        meta = item.get("metadata") or {}
        name = "/".join(part for part in (meta.get("namespace"), meta.get("name")) if part)
        found.append(Document("cluster", index, item, f"{item.get('kind', '')} {name}: "))
    return found


def _source(found: Iterable[Document], catalog: str, flags: Mapping[str, str]) -> Source:
    cluster = gather(found)
    recording = cluster.recording or {}
    merged = {**{str(k): str(v) for k, v in _part(recording, "settings", dict).items()}, **flags}
    settings, unknown = load_settings(merged, os.environ)
    entries = _part(recording, "instanceTypes", list)
    recorded = recording.get("instanceTypes") is not None
    types = parse_entries(entries, "snapshot") if recorded else read_catalog(catalog)
    for line in dict.fromkeys([*unknown, *types.warnings, *cluster.warnings]):
        click.echo(f"warning: {line}", err=True)
    snapshot = cluster.snapshot(types.types, _time(recording), types.label_rules)
    traits = _traits(types, recording)
    return Source(
        snapshot,
        replace(settings.packing(traits), managed_class_kinds=None),
        _disruption(settings, traits),
        frozenset(node.name for node in cluster.objects.get(kinds.NODE.kind, ())),
        frozenset(pod.key for pod in cluster.objects.get(kinds.POD.kind, ())),
    )


def _part(recording: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A part of the recording, empty when it is not there; raises ManifestError for one of another kind."""
    value = recording.get(name)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        wanted = "a list" if kind is list else "a mapping"
        raise ManifestError(
            f"ClusterSnapshot {name}: {value!r}: expected {wanted}, as `pykarpenter snapshot` writes it"
        )
    return value


def _time(recording: Mapping[str, Any]) -> float:
    recorded = recording.get("time")
    if recorded is None:
        return time.time()
    try:
        return parse_timestamp(recorded)
    except (ValueError, TypeError, AttributeError):
        problem = "expected a time such as 2026-01-14T12:00:00Z"
        raise ManifestError(f"ClusterSnapshot time: {recorded!r}: {problem}") from None


def _traits(types: Catalog, recording: Mapping[str, Any]) -> ProviderTraits:
    """What the recording says of the provider it was taken with."""
    policies = tuple(_policy(item) for item in _part(recording, "repairPolicies", list))
    return ProviderTraits(
        "file", (), label_rules=types.label_rules, reservation_id_label=RESERVATION_ID, repair_policies=policies
    )


def _disruption(settings: Settings, traits: ProviderTraits) -> DisruptionSettings:
    if not traits.repair_policies:
        # Bare manifests name no provider, so nothing can be said about repair.
        settings = replace(settings, feature_gates=replace(settings.feature_gates, node_repair=False))
    return replace(settings.disruption(traits), managed_class_kinds=None)


def _policy(item: Any) -> RepairPolicy:
    if not isinstance(item, Mapping):
        raise ManifestError(f"ClusterSnapshot repairPolicies: {item!r}: expected a mapping")
    bound = item.get("terminationGracePeriodSeconds")
    try:
        return RepairPolicy(
            condition_type=str(item.get("conditionType", "")),
            condition_status=str(item.get("conditionStatus", "")),
            reason_regex=str(item.get("reasonRegex", "")),
            toleration_s=float(item.get("tolerationSeconds", 0)),
            termination_grace_period_s=None if bound is None else float(bound),
            priority=int(item.get("priority", 0)),
            action=str(item.get("action", "")),
        )
    except (ValueError, TypeError) as error:
        raise ManifestError(f"ClusterSnapshot repairPolicies: {dict(item)!r}: {error}") from None


def _memory(snapshot: ClusterSnapshot) -> Memory:
    """What a running controller remembers and the cluster shows: disruptions under way, pools that wait."""
    sign = (DISRUPTED_TAINT.key, DISRUPTED_TAINT.effect)
    tainted = [view.name for view in snapshot.nodes if any((t.key, t.effect) == sign for t in view.taints)]
    waiting = {pool.name: read_back_off(pool).until for pool in snapshot.node_pools}
    return Memory(in_flight=frozenset(tainted), back_off_until=waiting)
