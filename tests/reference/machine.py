"""A machine as kube-scheduler will see it: possible labels, taints, ports, and raw affinity matching."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pykarpenter.api import labels as keys
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import NodeSelectorRequirement, Pod, Toleration
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.plans import PlannedClaim
from pykarpenter.core.snapshot import NodeView

Labels = dict[str, set[str]]


@dataclass
class Machine:
    """One target of a plan: what each label may turn out to be, and the pods planned there."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...]
    pods: list[Pod]
    is_existing: bool
    bound: list[Pod] = field(default_factory=list)
    # What a simulation knows of the labels while it packs: keys that something narrowed, before values are chosen.
    narrowed: Labels | None = None

    def domains(self, key: str) -> set[str]:
        return self.labels.get(key, set())


def allows(expression: NodeSelectorRequirement, values: Mapping[str, set[str]]) -> bool:
    """Whether the expression holds for every value the label may turn out to have."""
    key = keys.DEFAULT_RULES.normalise(expression.key)
    possible = values.get(key)
    if not possible:
        return expression.operator in ("NotIn", "DoesNotExist")
    return all(_value_allowed(expression, value) for value in possible)


def _value_allowed(expression: NodeSelectorRequirement, value: str) -> bool:
    operator = expression.operator
    if operator == "In":
        return value in expression.values
    if operator == "NotIn":
        return value not in expression.values
    if operator == "Exists":
        return True
    if operator == "DoesNotExist":
        return False
    try:
        number, bound = int(value), int(expression.values[0])
    except ValueError:
        return False
    return {"Gt": number > bound, "Lt": number < bound, "Gte": number >= bound, "Lte": number <= bound}[operator]


def node_affinity_holds(pod: Pod, values: Mapping[str, set[str]]) -> bool:
    """nodeSelector, and any one of the required terms."""
    for key, value in pod.spec.node_selector.items():
        if not allows(NodeSelectorRequirement(key=key, operator="In", values=[value]), values):
            return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    terms = affinity.required.node_selector_terms
    return any(all(allows(e, values) for e in term.match_expressions) for term in terms)


def tolerated(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Every taint that keeps pods away is tolerated; PreferNoSchedule only steers."""
    listed = list(tolerations)
    return all(taint.effect == "PreferNoSchedule" or any(_matches(t, taint) for t in listed) for taint in taints)


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.key == "":
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    try:
        wanted, actual = int(toleration.value), int(taint.value)
    except ValueError:
        return False
    return actual > wanted if toleration.operator == "Gt" else actual < wanted


def pod_host_ports(pod: Pod) -> list[tuple[str, int, str]]:
    return [
        (p.host_ip or "0.0.0.0", p.host_port, p.protocol) for c in pod.spec.containers for p in c.ports if p.host_port
    ]


def conflicting_ports(groups: list[list[tuple[str, int, str]]]) -> bool:
    for i, one in enumerate(groups):
        for other in groups[i + 1 :]:
            for a in one:
                for b in other:
                    if a[1:] == b[1:] and (a[0] == b[0] or {"0.0.0.0", "::"} & {a[0], b[0]}):
                        return True
    return False


def machine_labels(claim: PlannedClaim, pool: NodePool, item: InstanceType, offering: Offering) -> Labels:
    """The labels of a machine of that type bought by that offering."""
    values: Labels = {}
    for key, requirement in item.requirements.items():
        if not requirement.complement and requirement.values:
            values[key] = set(requirement.values)
    for key, requirement in offering.requirements.items():
        if not requirement.complement and requirement.values:
            values[key] = set(requirement.values)
    for key, value in {**pool.spec.template.metadata.labels, **claim.labels}.items():
        values[keys.DEFAULT_RULES.normalise(key)] = {value}
    values[keys.NODEPOOL] = {pool.name}
    reference = pool.spec.template.spec.node_class_ref
    values[reference.label_key] = {reference.name}
    values[keys.REGISTERED] = {"true"}
    values[keys.INITIALIZED] = {"true"}
    for expression in claim.requirements:
        possible = values.get(expression.key)
        if possible and len(possible) > 1:
            values[expression.key] = {v for v in possible if _value_allowed(expression, v)} or possible
    return values


def claim_machine(
    claim: PlannedClaim, index: int, pool: NodePool, types: Mapping[str, InstanceType], pods: list[Pod]
) -> Machine:
    """All labels any allowed purchase could end up with."""
    merged: Labels = {}
    for name in claim.instance_types:
        item = types.get(name)
        for offering in item.offerings if item else ():
            if not offering.launchable:
                continue
            values = machine_labels(claim, pool, item, offering)
            narrowed = [e for e in claim.requirements if e.key in (keys.ZONE, keys.CAPACITY_TYPE, keys.REGION)]
            if all(allows(e, values) for e in narrowed):
                for key, options in values.items():
                    merged.setdefault(key, set()).update(options)
    name = f"claim-{index}"
    merged[keys.HOSTNAME] = {name}
    narrowed = _narrowed_labels(claim, pool, pods, merged)
    return Machine(name, merged, tuple(pool.spec.template.spec.taints), pods, False, narrowed=narrowed)


# Emission narrows these to what can be launched, whether or not anything asked for it while packing.
_NARROWED_AT_EMISSION = (keys.CAPACITY_TYPE, keys.INSTANCE_TYPE)


def _narrowed_labels(claim: PlannedClaim, pool: NodePool, pods: list[Pod], chosen: Labels) -> Labels:
    """The keys about which the claim's requirements said something while it was packed, with all values still open."""
    asked = {e.key for e in pool.spec.template.spec.requirements} | {k for pod in pods for k in asked_keys(pod, chosen)}
    asked = {keys.DEFAULT_RULES.normalise(key) for key in asked}
    labels = {keys.DEFAULT_RULES.normalise(k): {v} for k, v in pool.spec.template.metadata.labels.items()}
    found: Labels = {keys.HOSTNAME: chosen[keys.HOSTNAME], keys.NODEPOOL: {pool.name}, **labels}
    for expression in claim.requirements:
        key = expression.key
        if key in found or (key in _NARROWED_AT_EMISSION and key not in asked):
            continue
        found[key] = set(expression.values) if expression.operator == "In" else chosen.get(key, set())
    return found


def asked_keys(pod: Pod, values: Labels) -> set[str]:
    """Keys that a pod's rules narrow on a machine with these labels: of its terms only those that hold there."""
    found = set(pod.spec.node_selector) | {c.topology_key for c in pod.spec.topology_spread_constraints}
    affinity = pod.spec.affinity
    node = affinity.node_affinity if affinity else None
    terms = list(node.required.node_selector_terms) if node and node.required else []
    terms += [item.preference for item in node.preferred] if node else []
    held = [term for term in terms if all(allows(e, values) for e in term.match_expressions)]
    found |= {e.key for term in held for e in term.match_expressions}
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        if part is not None:
            found |= {t.topology_key for t in (*part.required, *(w.pod_affinity_term for w in part.preferred))}
    return found


_GOING = {
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    ("karpenter.sh/unregistered", "NoExecute"),
    ("karpenter.sh/rebooting", "NoSchedule"),
}


def taints_that_count(view: NodeView) -> tuple[Taint, ...]:
    """A machine of ours that is coming up or rebooting is looked at without the taints that go by themselves."""
    if view.node is None:
        return view.taints
    raw = tuple(view.node.spec.taints)
    if not view.managed or (view.initialized and not view.rebooting):
        return raw
    startup = {(t.key, t.effect) for t in (view.claim.spec.startup_taints if view.claim else ())}
    return tuple(
        t for t in raw if (t.key, t.effect) not in _GOING | startup and not t.key.startswith("readiness.k8s.io/")
    )


def existing_machine(view: NodeView, pods: list[Pod]) -> Machine:
    values = {key: {value} for key, value in view.labels.items()}
    values.setdefault(keys.HOSTNAME, {view.name})
    return Machine(view.name, values, taints_that_count(view), pods, True, list(view.pods))
