"""Which pods a decision is about: provisionable pods, pods that must leave their nodes, and those it refuses to try.

A refused pod never holds up the others: it gets a Refusal and the batch goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pykarpenter.api import labels
from pykarpenter.api.pods import NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec
from pykarpenter.core.draining import is_daemon, is_mirror, needs_replacement_capacity
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.core.resources import spec_requests
from pykarpenter.core.snapshot import ClusterSnapshot, VolumeObjects
from pykarpenter.core.volumes import claims_problem

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")


def is_provisionable(pod: Pod) -> bool:
    """The scheduler gave up on it, nothing else has a claim on it, and no controller pins it to a node."""
    if pod.spec.node_name or pod.status.nominated_node_name:
        return False
    if not any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in pod.status.conditions):
        return False
    return not pod.metadata.owner_references or not (is_daemon(pod) or is_mirror(pod))


def leaving_pods(snapshot: ClusterSnapshot) -> list[Pod]:
    """Pods of nodes marked for deletion that need a place elsewhere."""
    return [
        pod
        for view in snapshot.nodes
        if view.marked_for_deletion
        for pod in (*view.pods, *view.returning)
        if needs_replacement_capacity(pod, snapshot.pdbs, snapshot.now)
    ]


def spec_problem(spec: PodSpec, settings: PackingSettings) -> Refusal | None:
    """What in the spec alone keeps every pod of it from being tried."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else []
    heaviest = max(affinity.preferred, key=lambda term: term.weight, default=None) if affinity is not None else None
    preferred = [heaviest.preference] if heaviest is not None else []
    if any(_opts_out(term.match_expressions) for term in [*terms[:1], *preferred]):
        return Refusal(Why.OPTED_OUT, f"the pod requires that {labels.NODEPOOL} does not exist")
    problem = _selector_problem(spec, terms, settings) or _spread_problem(spec) or _quantity_problem(spec)
    return Refusal(Why.INVALID_POD, problem) if problem else None


def volume_problem(pod: Pod, volumes: VolumeObjects, settings: PackingSettings) -> Refusal | None:
    if not pod.spec.volumes:
        return None
    problem = claims_problem(pod, volumes, settings.unsupported_csi_drivers, settings.unsupported_topology_keys)
    return Refusal(Why.VOLUME_UNUSABLE, problem) if problem else None


def _opts_out(expressions: Iterable[NodeSelectorRequirement]) -> bool:
    return any(e.key == labels.NODEPOOL and e.operator == "DoesNotExist" for e in expressions)


def _selector_problem(spec: PodSpec, terms: list[NodeSelectorTerm], settings: PackingSettings) -> str:
    for key, value in spec.node_selector.items():
        as_expression = NodeSelectorRequirement(key=key, operator="In", values=[value])
        problem = _expression_problem(as_expression, settings)
        if problem:
            return f"spec.nodeSelector: {problem}"
    for index, term in enumerate(terms):
        place = f"required node affinity term {index}"
        if term.match_fields:
            return f"{place}: matchFields is not supported; use matchExpressions on a label"
        for expression in term.match_expressions:
            problem = _expression_problem(expression, settings)
            if problem:
                return f"{place}: {problem}"
    return ""


def _expression_problem(expression: NodeSelectorRequirement, settings: PackingSettings) -> str:
    key = settings.label_rules.normalise(expression.key)
    values = expression.values
    if expression.operator not in _OPERATORS:
        return f'key "{key}" has operator {expression.operator!r}; use one of {", ".join(_OPERATORS)}'
    if not _qualified(key):
        return f'key "{key}" is not a valid label name'
    if settings.label_rules.is_restricted(key):
        return f'key "{key}" is restricted; use a well-known label or a label of your own'
    if expression.operator == "In" and not values:
        return f'key "{key}" uses In without values'
    if expression.operator in ("Gt", "Lt", "Gte", "Lte"):
        if len(values) != 1 or not (values[0].isascii() and values[0].isdigit()):
            return f'key "{key}" uses {expression.operator} with {values!r}; it needs one non-negative integer'
        return ""
    for value in values:
        if value and _NAME.fullmatch(value) is None:
            return f'key "{key}" has value {value!r}, which is not a valid label value'
    if key == labels.CAPACITY_TYPE and expression.operator == "In" and not set(values) & set(labels.CAPACITY_TYPES):
        return f'key "{key}" needs one of {", ".join(sorted(labels.CAPACITY_TYPES))}, got {values!r}'
    return ""


def _qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or _DNS.fullmatch(prefix) is None):
        return False
    return _NAME.fullmatch(name) is not None


def _spread_problem(spec: PodSpec) -> str:
    for index, constraint in enumerate(spec.topology_spread_constraints):
        place = f"topologySpreadConstraints[{index}]"
        if constraint.max_skew <= 0:
            return f"{place}.maxSkew: {constraint.max_skew}: must be at least 1"
        if not constraint.topology_key:
            return f"{place}.topologyKey: must name a node label"
        if constraint.when_unsatisfiable not in _SPREAD_ACTIONS:
            return f"{place}.whenUnsatisfiable: {constraint.when_unsatisfiable!r}: use {' or '.join(_SPREAD_ACTIONS)}"
        if constraint.min_domains is not None and constraint.min_domains <= 0:
            return f"{place}.minDomains: {constraint.min_domains}: must be at least 1"
    return ""


def _quantity_problem(spec: PodSpec) -> str:
    try:
        requests = spec_requests(spec)
    except ValueError as error:
        return f"resources: {error}"
    for name, amount in requests.items():
        if amount < 0:
            return f"resources: {name} is negative; requests must not be below zero"
    return ""
