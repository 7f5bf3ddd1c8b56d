"""`pykarpenter explain`: why a node stays or goes, why a pod waits or cannot be moved, what a pool's budgets allow.

Everything is decided anew from a snapshot, live or from a file; nothing is changed.
"""

from __future__ import annotations

import json
from typing import Any

import click

from pykarpenter.cli.sources import CannotRead, Source, given, load, options
from pykarpenter.core.disruption.engine import PackingSimulations
from pykarpenter.core.disruption.explain import explain_node, explain_pool, unreadable_node
from pykarpenter.core.disruption.pod_story import PodStory, explain_pod, pod_lines, pod_values
from pykarpenter.core.disruption.stories import node_lines, node_values, pool_lines, pool_values
from pykarpenter.core.packing import PackingEngine
from pykarpenter.core.plans import LaunchPlan

_OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)


@click.group("explain")
def command() -> None:
    """Say why: decided anew from the live cluster or a snapshot file."""


@command.command("node")
@click.argument("name")
@options
@_OUTPUT
def node(name: str, output: str, **where: Any) -> None:
    """Why a node stays or goes, method by method."""
    source = _source(where)
    world = source.world()
    view = world.by_name.get(name)
    if view is None:
        # People know claims by name too.
        view = next((v for v in world.nodes if v.claim is not None and v.claim.name == name), None)
    if view is not None:
        story = explain_node(world, _simulation(source), view)
    elif name in source.nodes:
        story = unreadable_node(name)
    else:
        raise CannotRead(_unknown("node", name, [v.name for v in world.nodes]))
    _show(output, node_lines(story), node_values(story))


@command.command("nodepool")
@click.argument("name")
@options
@_OUTPUT
def nodepool(name: str, output: str, **where: Any) -> None:
    """What a pool's budgets allow now and what keeps its nodes."""
    source = _source(where)
    world = source.world()
    if name not in world.pools:
        raise CannotRead(_unknown("nodepool", name, sorted(world.pools)))
    story = explain_pool(world, _simulation(source), name)
    _show(output, pool_lines(story), pool_values(story))


@command.command("pod")
@click.argument("name")
@options
@_OUTPUT
def pod(name: str, output: str, **where: Any) -> None:
    """Why a pod (NAMESPACE/NAME) waits, or whether it may be moved."""
    source = _source(where)
    key = name if "/" in name else f"default/{name}"
    story: PodStory | None = explain_pod(source.world(), key, lambda: _plan(source))
    if story is None and key in source.pods:
        raise CannotRead(f"pod {key!r} has ended or its node is not there, so it neither waits nor runs")
    if story is None:
        raise CannotRead(_unknown("pod", key, list(source.pods)))
    _show(output, pod_lines(story), pod_values(story))


def _source(where: dict[str, Any]) -> Source:
    own = ("files", "kubeconfig", "context", "provider", "catalog")
    flags = given({name: value for name, value in where.items() if name not in own})
    return load(where["files"], where["kubeconfig"], where["context"], where["provider"], where["catalog"], flags)


def _simulation(source: Source) -> Any:
    return PackingSimulations(source.packing)(source.snapshot)


def _plan(source: Source) -> LaunchPlan:
    return PackingEngine().pack(source.snapshot, source.packing)


def _show(output: str, lines: list[str], values: dict[str, Any]) -> None:
    click.echo(json.dumps(values, indent=2) if output == "json" else "\n".join(lines))


def _unknown(kind: str, name: str, known: list[str]) -> str:
    shown = ", ".join(sorted(known)[:5]) or "none"
    return f"{kind} {name!r} is not in the cluster; there is {shown}{' and more' if len(known) > 5 else ''}"
