"""Pods that look the same to the scheduler, and what can be said about them before any node is looked at.

Ten thousand pods of one Deployment are one shape: its selectors are parsed once, its node mask is computed once for
each change of the nodes, and when it fits nowhere none of its pods is tried again until supply changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from pykarpenter.api.meta import LabelSelector
from pykarpenter.api.pods import NodeSelectorRequirement, NodeSelectorTerm, Pod, TopologySpreadConstraint
from pykarpenter.core.resources import pod_requests
from pykarpenter.core.taints import tolerates
from pykarpenter.sim.scheduler.node_table import NAME_FIELD, Bools, Demand, Floats, NodeTable
from pykarpenter.sim.scheduler.occupancy import HostPort, host_ports
from pykarpenter.sim.scheduler.terms import Held, LabelKey, Term, affinity_term, label_key, make_term, with_label_keys

UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """One topology spread constraint, its selector completed by `matchLabelKeys`."""

    topology_key: str
    max_skew: int
    term: Term
    min_domains: int
    honour_affinity: bool
    honour_taints: bool


@dataclass(frozen=True, slots=True, eq=False)
class AffinityRule:
    """One pod affinity or anti-affinity term of the incoming pod; weight 0 for required ones."""

    topology_key: str
    term: Term
    weight: int = 0


@dataclass(slots=True, eq=False)
class StaticView:
    """What depends on nodes' labels, taints and cordons alone; valid for one version of the table."""

    version: int
    # In the order kube-scheduler asks: (message, slots that pass).
    filters: list[tuple[str, Bools]]
    passing: Bools
    affinity_ok: Bools
    taints_ok: Bools
    taint_penalty: Floats
    affinity_score: Floats


@dataclass(slots=True, eq=False)
class Shape:
    """Everything of a pod that decides where it can go."""

    pod: Pod
    labels: LabelKey
    demand: Demand
    ports: tuple[HostPort, ...]
    hard_spread: list[Spread]
    soft_spread: list[Spread]
    affinity: list[AffinityRule]
    # All required affinity selectors at once: an existing pod counts only when it matches every term.
    affinity_all: Term | None
    anti_affinity: list[AffinityRule]
    preferred: list[AffinityRule]
    claims: tuple[str, ...]
    static: StaticView | None = None
    # The supply at which the shape last fitted nowhere, and the message of that failure.
    failed_supply: int = -1
    failed_message: str = ""
    held_cache: tuple[int, list[Held]] = field(default_factory=lambda: (-1, []))


def shape_key(pod: Pod) -> bytes:
    owner = next((ref.uid for ref in pod.metadata.owner_references if ref.controller), "")
    return msgspec.json.encode((label_key(pod), owner, pod.spec), order="deterministic")


def make_shape(pod: Pod, table: NodeTable, default_selector: LabelSelector | None) -> Shape:
    """`default_selector` is that of the pod's Services and owners, used when it sets no constraints of its own."""
    affinity = pod.spec.affinity
    required = affinity.pod_affinity.required if affinity and affinity.pod_affinity else []
    anti = affinity.pod_anti_affinity if affinity else None
    rules = [AffinityRule(t.topology_key, affinity_term(pod, t)) for t in required]
    preferred = [
        AffinityRule(w.pod_affinity_term.topology_key, affinity_term(pod, w.pod_affinity_term), sign * w.weight)
        for group, sign in ((affinity.pod_affinity if affinity else None, 1), (anti, -1))
        if group is not None
        for w in group.preferred
    ]
    spreads = [(c.when_unsatisfiable, _spread(pod, c)) for c in pod.spec.topology_spread_constraints]
    soft = [s for when, s in spreads if when == "ScheduleAnyway"]
    if not spreads and default_selector is not None:
        soft = _default_spread(pod, default_selector)
    return Shape(
        pod=pod,
        labels=label_key(pod),
        demand=table.demand(pod_requests(pod)),
        ports=host_ports(pod),
        hard_spread=[s for when, s in spreads if when != "ScheduleAnyway"],
        soft_spread=soft,
        affinity=rules,
        affinity_all=_joined([r.term for r in rules]),
        anti_affinity=[AffinityRule(t.topology_key, affinity_term(pod, t)) for t in (anti.required if anti else [])],
        preferred=preferred,
        claims=tuple(_claim_names(pod)),
    )


def _claim_names(pod: Pod) -> list[str]:
    names: list[str] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            names.append(f"{pod.name}-{volume.name}")
    return names


def _spread(pod: Pod, constraint: TopologySpreadConstraint) -> Spread:
    selector = with_label_keys(constraint.label_selector, pod.metadata.labels, constraint.match_label_keys)
    return Spread(
        constraint.topology_key,
        constraint.max_skew,
        make_term([pod.metadata.namespace], [selector], staying_only=True),
        constraint.min_domains or 1,
        (constraint.node_affinity_policy or "Honor") == "Honor",
        (constraint.node_taints_policy or "Ignore") == "Honor",
    )


def _default_spread(pod: Pod, selector: LabelSelector) -> list[Spread]:
    """kube-scheduler's built-in preference: at most 3 apart between nodes, 5 between zones."""
    term = make_term([pod.metadata.namespace], [selector], staying_only=True)
    return [Spread(HOSTNAME, 3, term, 1, True, False), Spread(ZONE, 5, term, 1, True, False)]


def _joined(terms: list[Term]) -> Term | None:
    """One term that holds when all do; exact when their namespaces are equal, as they nearly always are."""
    if not terms:
        return None
    first = terms[0]
    namespaces = frozenset.intersection(*(t.namespaces for t in terms))
    return make_term(namespaces, [s for t in terms for s in t.selectors], first.namespace_selector)


def static_view(shape: Shape, table: NodeTable) -> StaticView:
    """The shape's filters and scores that follow from labels, taints and cordons; cached by table version."""
    if shape.static is not None and shape.static.version == table.version:
        return shape.static
    spec = shape.pod.spec
    hard_ok, penalty = _taint_sets(shape, table)
    taints_ok = hard_ok[table.taints]
    affinity_ok = _affinity_mask(shape.pod, table)
    cordon_ok = ~table.unschedulable
    if any(_tolerates_cordon(t.key, t.operator, t.effect) for t in spec.tolerations):
        cordon_ok = np.ones(table.size, dtype=np.bool_)
    filters = [
        ("node(s) were unschedulable", cordon_ok),
        ("node(s) had untolerated taint(s)", taints_ok),
        ("node(s) didn't match Pod's node affinity/selector", affinity_ok),
    ]
    preferred = np.zeros(table.size, dtype=np.float64)
    affinity = spec.affinity.node_affinity if spec.affinity else None
    for term in affinity.preferred if affinity else []:
        preferred += term.weight * term_mask(term.preference, table)
    shape.static = StaticView(
        version=table.version,
        filters=filters,
        passing=table.live & cordon_ok & taints_ok & affinity_ok,
        affinity_ok=affinity_ok,
        taints_ok=taints_ok & cordon_ok,
        taint_penalty=penalty[table.taints],
        affinity_score=preferred,
    )
    return shape.static


def _tolerates_cordon(key: str, operator: str, effect: str) -> bool:
    if effect not in ("", "NoSchedule"):
        return False
    return key == UNSCHEDULABLE_TAINT or (not key and operator == "Exists")


def _taint_sets(shape: Shape, table: NodeTable) -> tuple[Bools, Floats]:
    """For each distinct set of taints: whether the pod tolerates the hard ones, and how many soft ones it does not."""
    tolerations = shape.pod.spec.tolerations
    ok = np.ones(max(1, len(table.taint_sets)), dtype=np.bool_)
    penalty = np.zeros(max(1, len(table.taint_sets)), dtype=np.float64)
    for number, taints in enumerate(table.taint_sets):
        for taint in taints:
            if any(tolerates(toleration, taint) for toleration in tolerations):
                continue
            if taint.effect == "PreferNoSchedule":
                penalty[number] += 1
            else:
                ok[number] = False
    return ok, penalty


def _affinity_mask(pod: Pod, table: NodeTable) -> Bools:
    ok = np.ones(table.size, dtype=np.bool_)
    for key, value in pod.spec.node_selector.items():
        ok &= table.column(key) == table.value_number(key, value)
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is not None and affinity.required is not None:
        any_term = np.zeros(table.size, dtype=np.bool_)
        for term in affinity.required.node_selector_terms:
            any_term |= term_mask(term, table)
        ok &= any_term
    return ok


def term_mask(term: NodeSelectorTerm, table: NodeTable) -> Bools:
    """The slots that a node selector term selects; an empty term selects none."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(table.size, dtype=np.bool_)
    ok = np.ones(table.size, dtype=np.bool_)
    for expression in term.match_expressions:
        ok &= _expression_mask(expression, expression.key, table)
    for expression in term.match_fields:
        ok &= _expression_mask(expression, NAME_FIELD if expression.key == "metadata.name" else expression.key, table)
    return ok


def _expression_mask(expression: NodeSelectorRequirement, key: str, table: NodeTable) -> Bools:
    column = table.column(key)
    operator = expression.operator
    if operator == "Exists":
        return column >= 0
    if operator == "DoesNotExist":
        return column < 0
    if operator in ("In", "NotIn"):
        numbers = [table.value_number(key, value) for value in expression.values]
        found = column == numbers[0] if len(numbers) == 1 else np.isin(column, numbers)
        return found if operator == "In" else ~found
    if operator in ("Gt", "Lt") and len(expression.values) == 1:
        return np.isin(column, _numbers_beyond(table.values(key), operator, expression.values[0]))
    return np.zeros(table.size, dtype=np.bool_)


def _numbers_beyond(values: Mapping[str, int], operator: str, bound_text: str) -> list[int]:
    try:
        bound = int(bound_text)
    except ValueError:
        return []
    result: list[int] = []
    for text, number in values.items():
        try:
            value = int(text)
        except ValueError:
            continue
        if (value > bound) if operator == "Gt" else (value < bound):
            result.append(number)
    return result
