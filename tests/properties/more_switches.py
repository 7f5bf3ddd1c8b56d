"""Switches for the rules of a machine's youth, of volumes, offerings and emission; see test_every_rule_is_needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from pykarpenter.api.meta import LabelSelector
from pykarpenter.api.pods import PodStatus
from pykarpenter.core import volumes as core_volumes
from pykarpenter.core.packing import (
    attachments,
    care,
    classes,
    emission,
    engine,
    ladders,
    node_table,
    supply,
    templates,
    topology,
    type_table,
)
from pykarpenter.core.snapshot import NodeView

Patch = pytest.MonkeyPatch
Off = Callable[[Patch], None]


def _views(change: Callable[[NodeView], NodeView]) -> Off:
    """Decisions that see every machine otherwise."""

    def off(patch: Patch) -> None:
        whole = engine.PackingEngine.rows
        patch.setattr(
            engine.PackingEngine, "rows", lambda self, views: whole(self, tuple(change(view) for view in views))
        )

    return off


def _raw_taints(view: NodeView) -> NodeView:
    return view if view.node is None else replace(view, taints=tuple(view.node.spec.taints))


def _hidden_taints(view: NodeView) -> NodeView:
    passing = ("boot", "node.kubernetes.io/", "node.cloudprovider", "karpenter.sh/unregistered", "readiness.k8s.io/")
    return replace(view, taints=tuple(t for t in view.taints if not t.key.startswith(passing)))


def _startup_taints(patch: Patch) -> None:
    """Startup taints of a pool keep pods from its new machines."""
    whole = supply.Template

    def template(**parts: Any) -> Any:
        return whole(**{**parts, "taints": (*parts["taints"], *parts["pool"].spec.template.spec.startup_taints)})

    patch.setattr(supply, "Template", template)


def _requests(change: Callable[[Any], Any]) -> Off:
    def off(patch: Patch) -> None:
        whole = node_table.RequestMemo.requests
        patch.setattr(node_table.RequestMemo, "requests", lambda memo, pod: whole(memo, change(pod)))

    return off


def _without_sidecars(pod: Any) -> Any:
    kept = [c for c in pod.spec.init_containers if c.restart_policy != "Always"]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, init_containers=kept))


def _without_status(pod: Any) -> Any:
    return msgspec.structs.replace(pod, status=PodStatus())


def _always_feasible(pod: Any) -> Any:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=[]))


def _overrides(patch: Patch) -> None:
    whole = type_table.TypeTable.__init__

    def make(self: Any, types: Any, *rest: Any) -> None:
        bare = tuple(
            replace(t, offerings=tuple(replace(o, capacity_override={}, overhead_override={}) for o in t.offerings))
            for t in types
        )
        whole(self, bare, *rest)

    patch.setattr(type_table.TypeTable, "__init__", make)


def _emission_settings(**parts: Any) -> Off:
    def off(patch: Patch) -> None:
        whole = engine.Emission
        patch.setattr(engine, "Emission", lambda settings, *rest: whole(replace(settings, **parts), *rest))

    return off


def _any_price(patch: Patch) -> None:
    whole = type_table.TypeTable.cheapest

    def cheapest(self: Any, offerings: Any) -> Any:
        price, best = whole(self, offerings)
        return np.where(np.isfinite(price), 1.0, price), best

    patch.setattr(type_table.TypeTable, "cheapest", cheapest)


def _daemon_templates(patch: Patch) -> None:
    whole = engine.daemon_shapes
    patch.setattr(
        engine, "daemon_shapes", lambda snapshot, settings: whole(replace(snapshot, daemon_pods={}), settings)
    )


def _rows(change: Callable[[Any], None]) -> Off:
    def off(patch: Patch) -> None:
        whole = engine.node_row

        def row(*args: Any) -> Any:
            made = whole(*args)
            change(made)
            return made

        patch.setattr(engine, "node_row", row)

    return off


def _no_daemons_running(row: Any) -> None:
    row.daemon_requests = {}


def _terminating_count(patch: Patch) -> None:
    def lively(view: NodeView) -> NodeView:
        pods = tuple(
            msgspec.structs.replace(p, metadata=msgspec.structs.replace(p.metadata, deletion_timestamp=None))
            for p in view.pods
        )
        return replace(view, pods=pods)

    _views(lively)(patch)


def _first_alternative(patch: Patch) -> None:
    whole = classes.volume_demand

    def demand(*args: Any) -> Any:
        found = whole(*args)
        return replace(found, alternatives=found.alternatives[:1])

    patch.setattr(classes, "volume_demand", demand)


def _shared_volumes(patch: Patch) -> None:
    """Every pod counts its own attachment, shared or not."""
    whole = attachments.Attachments.fit_on_node

    def fit(self: Any, index: int, wanted: Any) -> Any:
        return whole(self, index, {driver: {f"{key}#" for key in found} for driver, found in wanted.items()})

    patch.setattr(attachments.Attachments, "fit_on_node", fit)


def _hostname_of_local_volumes(patch: Patch) -> None:
    """A local volume ties its pod to a host by name."""
    whole = core_volumes.volume_demand

    def demand(pod: Any, objects: Any, *rest: Any) -> Any:
        remote = {
            name: msgspec.structs.replace(v, spec=msgspec.structs.replace(v.spec, local=None, host_path=None))
            for name, v in objects.volumes.items()
        }
        return whole(pod, replace(objects, volumes=remote), *rest)

    patch.setattr(classes, "volume_demand", demand)


def _mounted_claims_only(patch: Patch) -> None:
    whole = core_volumes._mounts

    def mounts(pod: Any) -> Any:
        kept = [v for v in pod.spec.volumes if v.ephemeral is None]
        return whole(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, volumes=kept)))

    patch.setattr(core_volumes, "_mounts", mounts)


def _empty_selectors(patch: Patch) -> None:
    """A spread without a selector is taken as one over all pods."""
    whole = topology.Topology.spread

    def spread(self: Any, constraint: Any, *rest: Any) -> Any:
        if constraint.label_selector is None:
            constraint = msgspec.structs.replace(constraint, label_selector=LabelSelector())
        return whole(self, constraint, *rest)

    patch.setattr(topology.Topology, "spread", spread)


def _term_label_keys(patch: Patch) -> None:
    whole = topology.Topology.affinity

    def affinity(self: Any, kind: Any, term: Any, pod: Any) -> Any:
        return whole(self, kind, msgspec.structs.replace(term, match_label_keys=[], mismatch_label_keys=[]), pod)

    patch.setattr(topology.Topology, "affinity", affinity)


def _numbers_never_match(patch: Patch) -> None:
    whole = templates.Template.untolerated

    def untolerated(self: Any, tolerations: Any) -> Any:
        return whole(self, tuple(t for t in tolerations if t.operator not in ("Gt", "Lt")))

    patch.setattr(templates.Template, "untolerated", untolerated)


def _provisionable(**parts: Any) -> Off:
    def off(patch: Patch) -> None:
        whole = engine.is_provisionable

        def provisionable(pod: Any) -> bool:
            changed = {k: msgspec.structs.replace(getattr(pod, k), **v) for k, v in parts.items()}
            return whole(msgspec.structs.replace(pod, **changed))

        patch.setattr(engine, "is_provisionable", provisionable)

    return off


def _promises(patch: Patch) -> None:
    whole = supply.limits_left
    patch.setattr(supply, "limits_left", lambda pool, usages: whole(pool, usages[:1]))


def _not_on_their_way(patch: Patch) -> None:
    """Machines whose Node has not appeared take no pods."""
    whole = node_table.NodeTable.rooms

    def rooms(self: Any, vector: Any) -> Any:
        return np.where(self.has_node[: self.targets], whole(self, vector), 0)

    patch.setattr(node_table.NodeTable, "rooms", rooms)


def _no_tolerance(patch: Patch) -> None:
    whole = ladders.ladder
    patch.setattr(ladders, "ladder", lambda wishes, _tolerate: whole(wishes, False))


def _first_term(patch: Patch) -> None:
    whole = ladders.ladder
    patch.setattr(
        ladders, "ladder", lambda wishes, *rest: whole(replace(wishes, required_terms=wishes.required_terms[:1]), *rest)
    )


def _reserved_mode(**parts: Any) -> Off:
    def off(patch: Patch) -> None:
        whole = engine.Decision.__init__

        def make(self: Any, *args: Any, **how: Any) -> None:
            whole(self, *args, **how)
            self._reservations = replace(self._reservations, **parts)

        patch.setattr(engine.Decision, "__init__", make)

    return off


def _dear_minimum(patch: Patch) -> None:
    """Minimum values are lowered even where the policy is strict."""
    whole = care.Care.__init__

    def make(self: Any, *args: Any, **how: Any) -> None:
        whole(self, *args, **how)
        self._best_effort = True

    patch.setattr(care.Care, "__init__", make)


def _always(target: object, name: str, value: Any) -> Off:
    return lambda patch: patch.setattr(target, name, lambda *_args, **_how: value)


def _kind_as_it_is(patch: Patch) -> None:
    patch.setattr(attachments.Attachments, "narrowed", lambda _self, _kinds, kind, *_rest: kind)


MORE_RULES: dict[str, tuple[Off, int]] = {
    "taints: startup taints of pools do not count": (_startup_taints, 8),
    "taints: startup and ephemeral taints of machines that come up do not count": (_views(_raw_taints), 44),
    "taints: once a machine is up all of them count": (_views(_hidden_taints), 5),
    "taints: tolerations that compare numbers": (_numbers_never_match, 2),
    "taints: PreferNoSchedule is given up last": (_no_tolerance, 8),
    "terms: the next one when the first leads nowhere": (_first_term, 1),
    "resources: sidecars": (_requests(_without_sidecars), 1),
    "resources: resize in place": (_requests(_without_status), 3),
    "resources: a resize that is infeasible": (_requests(_always_feasible), 45),
    "daemons: the newest live pod": (_daemon_templates, 26),
    "daemons: those that run already": (_rows(_no_daemons_running), 276),
    "offerings: capacity and overhead of their own": (_overrides, 124),
    "pods: preempting ones wait": (_provisionable(status={"nominated_node_name": ""}), 1),
    "pods: those of DaemonSets are not ours": (_provisionable(metadata={"owner_references": []}), 22),
    "nodes: machines on their way take pods": (_not_on_their_way, 14),
    "topology: terminating pods do not count": (_terminating_count, 180),
    "topology: an absent selector selects nothing new": (_empty_selectors, 58),
    "topology: label keys of affinity terms": (_term_label_keys, 45),
    "volumes: attachment limits of new machines": (_kind_as_it_is, 26),
    "volumes: several zones": (_first_alternative, 9),
    "volumes: a shared one counts once": (_shared_volumes, 912),
    "volumes: the host of a local one does not count": (_hostname_of_local_volumes, 16),
    "volumes: those that a pod brings itself": (_mounted_claims_only, 19),
    "limits: capacity promised to machines not seen yet": (_promises, 41),
    "reservations: fallback instead of waiting": (_reserved_mode(mode=care.STRICT), 1),
    "reservations: credit": (_reserved_mode(credits={}), 1),
    "minValues: only BestEffort lowers them": (_dear_minimum, 6),
    "emission: at most so many types": (_emission_settings(max_instance_types=600), 2),
    "emission: cheapest first": (_any_price, 4),
    "emission: minValues after the cut": (_always(emission.Emission, "_relaxed", {}), 38),
    "emission: overlays are named": (_always(emission.Emission, "_annotations", {}), 12),
}
