"""Each rule of scheduling switched off in the engine, one at a time: the comparison with the oracle must notice.

A rule whose absence nobody notices is not tested. The seeds beside the rules are where the search begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pytest

from pykarpenter.core.packing import (
    attachments,
    care,
    classes,
    eligibility,
    engine,
    kernel,
    kinds,
    ladders,
    node_table,
    supply,
    templates,
    topology,
    type_table,
)
from pykarpenter.core.topology import groups
from pykarpenter.core.topology.groups import GroupKind
from tests.properties.against_the_oracle import problems, reference
from tests.properties.more_switches import MORE_RULES

SEEDS = range(1, 301)
MANY = 2**31
Patch = pytest.MonkeyPatch
Off = Callable[[Patch], None]


def _answer(target: object, name: str, value: Any) -> Off:
    """Always the same answer."""
    return lambda patch: patch.setattr(target, name, lambda *_args, **_how: value)


def _spec(**parts: Any) -> Off:
    """Requests reckoned as if the spec lacked these parts."""

    def off(patch: Patch) -> None:
        whole = node_table.RequestMemo.requests

        def requests(memo: node_table.RequestMemo, pod: Any) -> Any:
            return whole(memo, msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **parts)))

        patch.setattr(node_table.RequestMemo, "requests", requests)

    return off


def _only_pods(patch: Patch) -> None:
    patch.setattr(node_table.RequestMemo, "requests", lambda _memo, _pod: {"pods": 1})


def _without_resource(name: str) -> Off:
    def off(patch: Patch) -> None:
        whole = node_table.RequestMemo.requests

        def requests(memo: node_table.RequestMemo, pod: Any) -> Any:
            return {key: amount for key, amount in whole(memo, pod).items() if key != name}

        patch.setattr(node_table.RequestMemo, "requests", requests)

    return off


def _undefined_labels(patch: Patch) -> None:
    def merge(sets: Any, host: int, guest: int) -> int:
        left, right = sets[host], sets[guest]
        fits = left.compatible(right, frozenset(right))
        return sets.intern(left.merged(right.values())) if fits else -1

    patch.setattr(kinds.RequirementSets, "merge", merge)


def _volumes(**parts: Any) -> Off:
    def off(patch: Patch) -> None:
        whole = classes.volume_demand
        patch.setattr(classes, "volume_demand", lambda *args: replace(whole(*args), **parts))

    return off


def _spread_constraint(**parts: Any) -> Off:
    def off(patch: Patch) -> None:
        whole = topology.Topology.spread

        def spread(self: Any, constraint: Any, *rest: Any) -> Any:
            return whole(self, msgspec.structs.replace(constraint, **parts), *rest)

        patch.setattr(topology.Topology, "spread", spread)

    return off


def _zonal_spread(patch: Patch) -> None:
    patch.setattr(groups, "_spread", lambda _group, allowed, _itself: (dict.fromkeys(allowed, MANY), ""))


def _host_rule(kind: GroupKind) -> Off:
    def off(patch: Patch) -> None:
        whole = kernel.host_caps

        def caps(item: Any, counts: Any) -> Any:
            return np.full(len(counts), MANY) if item.group.rule.kind is kind else whole(item, counts)

        patch.setattr(kernel, "host_caps", caps)

    return off


def _zonal_rule(kind: GroupKind) -> Off:
    def off(patch: Patch) -> None:
        whole = ladders.Ladders._rung

        def rung(*args: Any) -> Any:
            made = whole(*args)
            made.zonal = [item for item in made.zonal if item.group.rule.kind is not kind]
            return made

        patch.setattr(ladders.Ladders, "_rung", rung)

    return off


def _batch_guards(patch: Patch) -> None:
    """Anti-affinity of pods placed in this batch keeps nobody away."""
    whole = ladders.Ladders.prepare

    def prepare(self: Any, members: Any, in_batch: Any) -> None:
        whole(self, members, in_batch)
        for cls in members:
            cls.guards = []

    patch.setattr(ladders.Ladders, "prepare", prepare)


def _own_namespace(patch: Patch) -> None:
    patch.setattr(topology.Namespaces, "of", lambda _self, _term, own: frozenset({own}))


def _no_relaxation(patch: Patch) -> None:
    whole = ladders.ladder
    patch.setattr(ladders, "ladder", lambda *args: [next(whole(*args))])


def _no_preferences(patch: Patch) -> None:
    whole = ladders.Ladders.__init__

    def prepare(self: Any, *args: Any) -> None:
        whole(self, *args)
        self._respect = False

    patch.setattr(ladders.Ladders, "__init__", prepare)


def _pool_order(patch: Patch) -> None:
    whole = supply.dynamic_pools
    patch.setattr(supply, "dynamic_pools", lambda *args: list(reversed(whole(*args))))


def _every_pool(patch: Patch) -> None:
    patch.setattr(supply, "dynamic_pools", lambda snapshot, _settings: list(snapshot.node_pools))


def _limit(*, nodes: bool) -> Off:
    def off(patch: Patch) -> None:
        whole = supply.limits_left

        def left(*args: Any) -> Any:
            found = whole(*args)
            kept = {name: amount for name, amount in (found or {}).items() if (name == "nodes") is not nodes}
            return kept or None

        patch.setattr(supply, "limits_left", left)

    return off


def _limit_usage(patch: Patch) -> None:
    whole = supply.limits_left
    patch.setattr(supply, "limits_left", lambda pool, _usages: whole(pool, []))


def _unavailable(patch: Patch) -> None:
    whole = type_table.TypeTable._build_offerings

    def build(self: Any) -> None:
        whole(self)
        self.available[:] = self.launchable[:] = True

    patch.setattr(type_table.TypeTable, "_build_offerings", build)


def _units(patch: Patch) -> None:
    whole = care._units
    patch.setattr(care, "_units", lambda *args: dict.fromkeys(whole(*args), 1000))


def _no_waiting(patch: Patch) -> None:
    whole = care.Care.__init__

    def make(self: Any, *args: Any, **how: Any) -> None:
        whole(self, *args, **how)
        self._strict = False

    patch.setattr(care.Care, "__init__", make)


def _leaving_targets(patch: Patch) -> None:
    """Nodes marked for deletion take pods."""
    whole = node_table.NodeTable.__init__

    def make(self: Any, *args: Any) -> None:
        whole(self, *args)
        self.targets = len(self.views)

    patch.setattr(node_table.NodeTable, "__init__", make)


def _protected_leave(patch: Patch) -> None:
    patch.setattr(
        engine,
        "leaving_pods",
        lambda snapshot: [pod for view in snapshot.nodes if view.marked_for_deletion for pod in view.pods],
    )


def _gated_pods(patch: Patch) -> None:
    patch.setattr(engine, "is_provisionable", lambda pod: not pod.spec.node_name)


def _node_ports(patch: Patch) -> None:
    whole = kernel.Kernel.__init__

    def make(self: Any, *args: Any, **how: Any) -> None:
        whole(self, *args, **how)
        self.node_ports = {}

    patch.setattr(kernel.Kernel, "__init__", make)


def _buffers(patch: Patch) -> None:
    whole = engine.Decision._batch

    def batch(self: Any, *args: Any) -> Any:
        self._snapshot = replace(self._snapshot, buffer_pods=())
        return whole(self, *args)

    patch.setattr(engine.Decision, "_batch", batch)


def _bound_pods(patch: Patch) -> None:
    patch.setattr(topology.Topology, "_count_existing", lambda _self, _group: None)


def _existing_first(patch: Patch) -> None:
    """Machines that exist are not used."""
    whole = node_table.NodeTable.rooms
    patch.setattr(node_table.NodeTable, "rooms", lambda self, vector: whole(self, vector) * 0)


def _all_nodes(name: str) -> Off:
    return lambda patch: patch.setattr(
        node_table.NodeTable, name, lambda self, _wanted: np.ones(len(self.rows), dtype=bool)
    )


RULES: dict[str, tuple[Off, int]] = {
    "pods: only those the scheduler gave up on": (_gated_pods, 5),
    "pods: do-not-disrupt and blocking PDBs keep pods on leaving nodes": (_protected_leave, 18),
    "pods: buffers bring virtual pods": (_buffers, 8),
    "validation of node selectors and terms": (_answer(classes, "spec_problem", None), 2),
    "validation of volume claims": (_answer(eligibility, "claims_problem", ""), 16),
    "devices are refused when they are ignored": (_answer(classes, "uses_devices", False), 6),
    "pools: ready, dynamic, not deleting": (_every_pool, 6),
    "pools: weight, then name": (_pool_order, 186),
    "nodes: marked for deletion take nothing": (_leaving_targets, 4),
    "nodes: existing machines are used": (_existing_first, 3),
    "requirements of new machines": (
        lambda patch: patch.setattr(kinds.KindTable, "merge", lambda _self, kind, _guest: kind),
        1,
    ),
    "requirements of existing machines": (_all_nodes("compatible"), 5),
    "undefined labels": (_undefined_labels, 34),
    "offerings: only available ones": (_unavailable, 9),
    "taints of new machines": (_answer(templates.Template, "untolerated", None), 1),
    "taints of existing machines": (_all_nodes("tolerated"), 11),
    "relaxation of preferences": (_no_relaxation, 1),
    "preferences count until relaxed": (_no_preferences, 1),
    "resources: cpu": (_without_resource("cpu"), 1),
    "resources: memory": (_without_resource("memory"), 1),
    "resources: extended": (_without_resource("nvidia.com/gpu"), 12),
    "resources: all": (_only_pods, 1),
    "resources: init containers": (_spec(init_containers=[]), 1),
    "resources: overhead": (_spec(overhead={}), 46),
    "resources: pod level": (_spec(resources=None), 31),
    "daemons on new machines": (_answer(supply, "daemon_types", []), 35),
    "daemons on existing machines": (_answer(node_table.NodeDaemons, "total", {}), 22),
    "host ports": (_answer(classes, "host_ports", ()), 18),
    "host ports of bound pods": (_node_ports, 857),
    "volumes: where they can be reached": (_volumes(alternatives=()), 6),
    "volumes: attachment limits": (_volumes(attachments={}), 25),
    "volumes: limits of existing machines": (_answer(attachments.Attachments, "fit_on_node", True), 25),
    "spread over zones": (_zonal_spread, 6),
    "spread over hosts": (_host_rule(GroupKind.SPREAD), 29),
    "spread: minDomains": (_spread_constraint(min_domains=None), 6),
    "spread: nodeAffinityPolicy": (_spread_constraint(node_affinity_policy="Ignore"), 259),
    "spread: nodeTaintsPolicy": (_spread_constraint(node_taints_policy="Ignore"), 149),
    "spread: matchLabelKeys": (_answer(topology, "match_label_keys", ()), 6),
    "spread by default": (_answer(engine.DefaultSpread, "__call__", ()), 10),
    "bound pods count": (_bound_pods, 25),
    "affinity over zones": (_zonal_rule(GroupKind.AFFINITY), 1),
    "affinity over hosts": (_host_rule(GroupKind.AFFINITY), 51),
    "anti-affinity over zones": (_zonal_rule(GroupKind.ANTI_AFFINITY), 1),
    "anti-affinity over hosts": (_host_rule(GroupKind.ANTI_AFFINITY), 13),
    "inverse anti-affinity over zones": (_zonal_rule(GroupKind.INVERSE), 1),
    "inverse anti-affinity over hosts": (_host_rule(GroupKind.INVERSE), 31),
    "inverse anti-affinity of pods of the batch": (_batch_guards, 1),
    "namespaces of terms": (_own_namespace, 1),
    "limits": (_limit(nodes=False), 6),
    "limits: nodes": (_limit(nodes=True), 2),
    "limits: what machines use already": (_limit_usage, 18),
    "minValues": (_answer(care.Care, "unmet", []), 6),
    "reservations: units": (_units, 1),
    "reservations: a pod waits for a full one": (_no_waiting, 102),
    "resources: of overlays": (_without_resource("example.com/fpga"), 12),
    **MORE_RULES,
}


@pytest.mark.parametrize("rule", RULES)
def test_switching_a_rule_off_is_noticed(rule: str, monkeypatch: Patch):
    """The suite of the oracle turns red for every rule of the specification."""
    off, first = RULES[rule]
    assert next(_noticing(off, first, monkeypatch), None) is not None


def _noticing(off: Off, first: int, monkeypatch: Patch) -> Iterator[int]:
    """Seeds on which the engine without the rule falls short of the oracle."""
    for seed in chain([first], (seed for seed in SEEDS if seed != first)):
        reference(seed)
        with monkeypatch.context() as patch:
            off(patch)
            if problems(seed):
                yield seed
