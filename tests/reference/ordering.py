"""Whether some order of placing the planned pods keeps every topology rule at each step.

Greedy in several orders: place any pod whose rules hold now until none is left. Pods that were stuck go first in the
next attempt; when no order gets to the end, what remains is a breach. An order that gets to the end is a proof.

Machines are looked at as kube-scheduler will see them, all labels known. Where that finds no order, they are looked at
as the specification has a simulation see them, which knows less: a claim counts in a domain only when a requirement
narrowed it to one (not when one offering happens to be left), it passes a node filter when its requirements are
compatible with it, domains are those that pools can provide, and a pod that gave up its first required terms counts
the machines that the remaining ones admit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pykarpenter.api import labels as keys
from pykarpenter.api.meta import LabelSelector, LabelSelectorRequirement, condition_status
from pykarpenter.api.pods import NodeSelectorRequirement, Pod, PodAffinityTerm, TopologySpreadConstraint
from pykarpenter.core import resources
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.reference.defaults import with_default_spread
from tests.reference.machine import Labels, Machine, allows, existing_machine, node_affinity_holds, tolerated
from tests.reference.selection import is_terminal, selector_matches


@dataclass
class Board:
    """Machines with the pods that stand on them so far."""

    snapshot: ClusterSnapshot
    machines: list[Machine]
    standing: dict[str, list[Pod]]
    # Whether machines are seen as while packing.
    simulated: bool = False

    def labels(self, machine: Machine) -> Labels:
        return machine.labels if not self.simulated or machine.narrowed is None else machine.narrowed

    def domains(self, machine: Machine, key: str) -> set[str]:
        return self.labels(machine).get(key, set())

    def admits(self, machine: Machine, term: list[NodeSelectorRequirement]) -> bool:
        """Whether a node filter's term lets the machine count."""
        if not self.simulated or machine.is_existing:
            return all(allows(e, machine.labels) for e in term)
        return all(_compatible(e, self.labels(machine)) for e in term)

    def occupied(self, pods_match, key: str, single: bool, keep=lambda machine: True) -> dict[str, int]:
        counts: dict[str, int] = {}
        for machine in self.machines:
            # Whoever wants to be apart looks at every domain that a machine could still be in.
            domains = self.domains(machine, key) if single else machine.domains(key)
            if not domains or (single and len(domains) != 1) or not keep(machine):
                continue
            number = sum(1 for p in self.standing[machine.name] if pods_match(p))
            for domain in domains:
                counts[domain] = counts.get(domain, 0) + number
        return counts


Order = Callable[[Pod, Machine, Board], tuple[Any, ...]]


# Attempts per order, each with the pods first that were stuck before.
ATTEMPTS = 6


def replay(snapshot: ClusterSnapshot, settings: PackingSettings, planned: list[Machine]) -> list[str]:
    problems = _replay(snapshot, settings, planned, simulated=False)
    return problems and _replay(snapshot, settings, planned, simulated=True) and problems


def _replay(snapshot: ClusterSnapshot, settings: PackingSettings, planned: list[Machine], simulated: bool) -> list[str]:
    problems: list[str] = []
    for order in (_crowding, _queue_order, _tightest_rule, _widest_rule):
        urgency: Counter[str] = Counter()
        for _ in range(ATTEMPTS):
            problems = _play(_board(snapshot, planned, simulated), settings, planned, order, urgency)
            if not problems:
                return []
    return problems


def _play(
    board: Board, settings: PackingSettings, planned: list[Machine], order: Order, urgency: Counter[str]
) -> list[str]:
    """What remains when pods are placed in this order; what was stuck becomes more urgent."""
    waiting: list[tuple[Pod, Machine]] = [
        (with_default_spread(pod, board.snapshot, settings.default_spread), machine)
        for machine in planned
        for pod in machine.pods
    ]
    while waiting:
        ready = [(p, m) for p, m in waiting if next(_breaches(p, m, board), None) is None]
        if not ready:
            urgency.update(p.key for p, _ in waiting)
            return [f"{p.key} on {m.name}: {next(_breaches(p, m, board))}" for p, m in waiting[:5]]
        pod, machine = min(ready, key=lambda entry: (-urgency[entry[0].key], *order(entry[0], entry[1], board)))
        board.standing[machine.name].append(pod)
        waiting = [(p, m) for p, m in waiting if p.key != pod.key]
    return []


def _board(snapshot: ClusterSnapshot, planned: list[Machine], simulated: bool) -> Board:
    batch = {p.key for m in planned for p in m.pods}
    names = {m.name for m in planned}
    others = [existing_machine(v, []) for v in snapshot.nodes if v.name not in names]
    machines = [*planned, *others]
    standing = {
        m.name: [p for p in m.bound if p.key not in batch and not is_terminal(p) and not p.is_deleting]
        for m in machines
    }
    return Board(snapshot, machines, standing, simulated)


def _crowding(pod: Pod, machine: Machine, board: Board) -> tuple[Any, ...]:
    """Pods with a spread of their own go first, into the emptiest domain: others would only be in their way."""
    worst = 0
    for constraint in _own_spreads(pod):
        selector = _extended(constraint.label_selector, constraint.match_label_keys, pod)
        counts = board.occupied(lambda p, s=selector: _selected(p, {pod.namespace}, s), constraint.topology_key, True)
        worst = max([worst, *(counts.get(d, 0) for d in machine.domains(constraint.topology_key))])
    return (not _own_spreads(pod), worst, pod.key)


def _own_spreads(pod: Pod) -> list[TopologySpreadConstraint]:
    """Constraints in which the pod counts anybody placed with it; one without a selector counts nobody new."""
    return [c for c in pod.spec.topology_spread_constraints if c.label_selector is not None]


def _queue_order(pod: Pod, machine: Machine, board: Board) -> tuple[Any, ...]:
    """The order in which the specification's queue would come to the pod."""
    wanted = resources.pod_requests(pod)
    return (-wanted.get("cpu", 0), -wanted.get("memory", 0), pod.uid)


def _tightest_rule(pod: Pod, machine: Machine, board: Board) -> tuple[Any, ...]:
    """Pods whose rule looks at a single host first, then other spreads, then the rest."""
    on_host = [c for c in _own_spreads(pod) if c.topology_key == keys.HOSTNAME]
    return (not on_host, *_crowding(pod, machine, board))


def _widest_rule(pod: Pod, machine: Machine, board: Board) -> tuple[Any, ...]:
    """Pods that spread over zones or the like first: those that only count there would tilt the balance for them."""
    wide = [c for c in _own_spreads(pod) if c.topology_key != keys.HOSTNAME]
    alike = 0
    for key in (keys.ZONE, keys.CAPACITY_TYPE):
        counts = board.occupied(lambda p: _same_app(p, pod), key, True)
        alike += sum(counts.get(d, 0) for d in machine.domains(key))
    return (not wide, alike if not wide else 0, *_crowding(pod, machine, board))


def _same_app(one: Pod, other: Pod) -> bool:
    return one.namespace == other.namespace and one.metadata.labels.get("app") == other.metadata.labels.get("app")


def _selected(pod: Pod, namespaces: set[str], selector: LabelSelector | None) -> bool:
    return pod.namespace in namespaces and selector_matches(selector, pod.metadata.labels)


def _extended(
    selector: LabelSelector | None, label_keys: list[str], pod: Pod, operator: str = "In"
) -> LabelSelector | None:
    if selector is None:
        return None
    extra = [
        LabelSelectorRequirement(key=k, operator=operator, values=[pod.metadata.labels[k]])
        for k in label_keys
        if k in pod.metadata.labels
    ]
    return LabelSelector(match_labels=selector.match_labels, match_expressions=[*selector.match_expressions, *extra])


def _breaches(pod: Pod, machine: Machine, board: Board) -> Iterator[str]:
    for constraint in pod.spec.topology_spread_constraints:
        if constraint.when_unsatisfiable == "DoNotSchedule":
            yield from _spread_breach(pod, machine, constraint, board)
    affinity = pod.spec.affinity
    for term in affinity.pod_affinity.required if affinity and affinity.pod_affinity else []:
        yield from _affinity_breach(pod, machine, term, board)
    for term in affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else []:
        match = _term_match(pod, term, board)
        counts = board.occupied(match, term.topology_key, False)
        if any(counts.get(d, 0) > 0 for d in machine.domains(term.topology_key)):
            yield f"anti-affinity on {term.topology_key}"
    for other in board.machines:
        for standing in board.standing[other.name]:
            yield from _mirror_breach(pod, machine, standing, other, board)


def _term_match(pod: Pod, term: PodAffinityTerm, board: Board):
    namespaces = set(term.namespaces)
    if term.namespace_selector is not None:
        namespaces |= {
            n
            for n, o in board.snapshot.namespaces.items()
            if selector_matches(term.namespace_selector, o.metadata.labels)
        }
    if not term.namespaces and term.namespace_selector is None:
        namespaces = {pod.namespace}
    selector = _extended(term.label_selector, term.match_label_keys, pod)
    selector = _extended(selector, term.mismatch_label_keys, pod, "NotIn")
    return lambda p: _selected(p, namespaces, selector)


def _mirror_breach(pod: Pod, machine: Machine, standing: Pod, other: Machine, board: Board) -> Iterator[str]:
    affinity = standing.spec.affinity
    for term in affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else []:
        if _term_match(standing, term, board)(pod) and machine.domains(term.topology_key) & other.domains(
            term.topology_key
        ):
            yield f"the anti-affinity of {standing.key} on {term.topology_key}"


def _affinity_breach(pod: Pod, machine: Machine, term: PodAffinityTerm, board: Board) -> Iterator[str]:
    match = _term_match(pod, term, board)
    counts = board.occupied(match, term.topology_key, True)
    domains = board.domains(machine, term.topology_key)
    if domains and all(counts.get(d, 0) > 0 for d in domains):
        return
    reachable = {
        d for d, n in counts.items() if n > 0 and node_affinity_holds(pod, {term.topology_key: {d}} | _free(pod, term))
    }
    if match(pod) and not reachable and len(domains) == 1:
        return
    yield f"affinity on {term.topology_key}"


def _free(pod: Pod, term: PodAffinityTerm) -> dict[str, set[str]]:
    """Labels under which only the term's own key decides whether the pod's node affinity holds."""
    return {k: {v} for k, v in pod.spec.node_selector.items() if k != term.topology_key}


def _spread_breach(pod: Pod, machine: Machine, constraint: TopologySpreadConstraint, board: Board) -> Iterator[str]:
    key = constraint.topology_key
    selector = _extended(constraint.label_selector, constraint.match_label_keys, pod)
    domains = board.domains(machine, key)
    if len(domains) != 1:
        yield f"spread on {key}: the machine's domain is open"
        return
    domain = next(iter(domains))
    extra = 1 if _selected(pod, {pod.namespace}, selector) else 0
    excess = []
    for own, remaining in _readings(pod, machine, board):
        counted = _filter(pod, constraint, remaining, board)
        counts = board.occupied(lambda p: _selected(p, {pod.namespace}, selector), key, True, counted)
        lowest = 0
        if key != keys.HOSTNAME:
            known = {d for m in board.machines if counted(m) for d in board.domains(m, key)} | set(counts)
            known |= _provided(pod, constraint, board) if board.simulated else set()
            reachable = {d for d in known if all(allows(e, {key: {d}}) for e in own if _key(e) == key)}
            enough = constraint.min_domains is None or len(reachable) >= constraint.min_domains
            lowest = min((counts.get(d, 0) for d in reachable), default=0) if enough else 0
        if counts.get(domain, 0) + extra - lowest <= constraint.max_skew:
            return
        excess.append((counts.get(domain, 0), lowest))
    yield f"spread on {key}: {domain} has {excess[0][0]}, lowest is {[lowest for _, lowest in excess]}"


Term = list[NodeSelectorRequirement]


def _readings(pod: Pod, machine: Machine, board: Board) -> list[tuple[Term, list[Term]]]:
    """Each term by which the pod may be on the machine, with the terms whose machines it counts then."""
    terms = _terms(pod)
    met = [index for index, term in enumerate(terms) if all(allows(e, machine.labels) for e in term)]
    return [(terms[i], terms[i:] if board.simulated else terms) for i in met or range(len(terms))]


def _filter(
    pod: Pod, constraint: TopologySpreadConstraint, terms: list[Term], board: Board
) -> Callable[[Machine], bool]:
    """The machines that a constraint counts."""
    honor_affinity = (constraint.node_affinity_policy or "Honor") == "Honor"
    honor_taints = constraint.node_taints_policy == "Honor"

    def counted(target: Machine) -> bool:
        if honor_affinity and not any(board.admits(target, term) for term in terms):
            return False
        return not honor_taints or tolerated(pod.spec.tolerations, target.taints)

    return counted


def _provided(pod: Pod, constraint: TopologySpreadConstraint, board: Board) -> set[str]:
    """Domains that pools can provide; with taints honoured only pools whose taints the pod tolerates."""
    key = constraint.topology_key
    found: set[str] = set()
    for pool in board.snapshot.node_pools:
        template = pool.spec.template.spec
        if pool.is_static or pool.is_deleting or condition_status(pool.status.conditions, "Ready") != "True":
            continue
        if constraint.node_taints_policy == "Honor" and not tolerated(pod.spec.tolerations, template.taints):
            continue
        for item in board.snapshot.instance_types.get(pool.name, ()):
            own = {k: set(r.values) for k, r in item.requirements.items() if not r.complement}
            if not all(_compatible(e, own) for e in template.requirements if _key(e) in own):
                continue
            wanted = [e for e in template.requirements if _key(e) == key]
            found |= {d for d in own.get(key, ()) if all(allows(e, {key: {d}}) for e in wanted)}
    return found


def _compatible(expression: NodeSelectorRequirement, values: Labels) -> bool:
    """Whether the expression can still hold for what a label may turn out to be."""
    possible = values.get(_key(expression))
    if not possible:
        return expression.operator in ("NotIn", "DoesNotExist")
    return any(allows(expression, {_key(expression): {value}}) for value in possible)


def _key(expression: NodeSelectorRequirement) -> str:
    return keys.DEFAULT_RULES.normalise(expression.key)


def _terms(pod: Pod) -> list[Term]:
    """Each way in which a machine can meet the pod's node affinity: the node selector with one required term."""
    selector = [NodeSelectorRequirement(key=k, operator="In", values=[v]) for k, v in pod.spec.node_selector.items()]
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return [selector]
    return [[*selector, *t.match_expressions] for t in affinity.required.node_selector_terms] or [selector]
