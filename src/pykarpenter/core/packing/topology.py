"""All topology groups of one decision: made from the pods' rules, counted on the machines that exist, kept up to date.

The known domains of a key come from the pools' types, from the pools' own values and from the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pykarpenter.api import labels
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.meta import LabelSelector
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import Pod, PodAffinityTerm, Toleration, TopologySpreadConstraint
from pykarpenter.core.interning import Bools, Ints, RequirementSets
from pykarpenter.core.packing.kinds import Kind
from pykarpenter.core.packing.node_table import NodeTable
from pykarpenter.core.packing.templates import Template
from pykarpenter.core.requirements import Requirements, from_labels
from pykarpenter.core.taints import first_untolerated
from pykarpenter.core.topology.groups import Group, GroupKind, GroupRule, NodeFilter
from pykarpenter.core.topology.selectors import compile_selector, match_label_keys


class Namespaces:
    """Which namespaces a term is about."""

    def __init__(self, known: Mapping[str, Mapping[str, str]]) -> None:
        self._known = known
        self._selected: dict[object, frozenset[str]] = {}

    def of(self, term: PodAffinityTerm, own: str) -> frozenset[str]:
        if not term.namespaces and term.namespace_selector is None:
            return frozenset({own})
        return frozenset(term.namespaces) | self._matching(term.namespace_selector)

    def _matching(self, selector: LabelSelector | None) -> frozenset[str]:
        compiled = compile_selector(selector)
        found = self._selected.get(compiled)
        if found is None:
            found = frozenset(name for name, values in self._known.items() if compiled.matches(values))
            self._selected[compiled] = found
        return found


class Topology:
    """The groups of one decision and what they have counted."""

    def __init__(
        self,
        nodes: NodeTable,
        templates: Sequence[Template],
        sets: RequirementSets,
        namespaces: Namespaces,
        rules: LabelRules,
    ) -> None:
        self.nodes = nodes
        self._templates = templates
        self._sets = sets
        self._namespaces = namespaces
        self._rules = rules
        self.groups: dict[GroupRule, Group] = {}
        # Spreads over keys other than hostname on which some pod insists, and their keys.
        self._binding: list[Group] = []
        self.binding_keys: list[str] = []
        self._newly_bound: dict[tuple[int, int], list[tuple[Group, str]]] = {}
        self._domains: dict[int, list[str]] = {}
        self._universe: dict[str, dict[str, list[tuple[Taint, ...]]]] = {}
        self._known: dict[tuple[GroupRule, tuple[Toleration, ...]], list[str]] = {}
        self._passing: dict[NodeFilter, Bools] = {}
        self._kind_domains: dict[tuple[int, int], tuple[str, ...]] = {}
        self._reachable: dict[tuple[int, str], tuple[str, ...]] = {}
        self._all_values: dict[str, tuple[str, ...]] = {}

    # Groups from rules.

    def spread(self, constraint: TopologySpreadConstraint, pod: Pod, wishes_filter: NodeFilter) -> Group:
        selector = compile_selector(constraint.label_selector)
        own = match_label_keys(pod.metadata.labels, constraint.match_label_keys)
        honours_affinity = (constraint.node_affinity_policy or "Honor") == "Honor"
        honours_taints = constraint.node_taints_policy == "Honor"
        node_filter = NodeFilter(
            wishes_filter.alternatives if honours_affinity else (),
            wishes_filter.tolerations if honours_taints else None,
        )
        return self._group(
            GroupRule(
                GroupKind.SPREAD,
                self._rules.normalise(constraint.topology_key),
                frozenset({pod.metadata.namespace}),
                selector.narrowed(own),
                constraint.max_skew,
                constraint.min_domains,
                node_filter,
                constraint.label_selector is None,
            )
        )

    def affinity(self, kind: GroupKind, term: PodAffinityTerm, pod: Pod) -> Group:
        own = match_label_keys(pod.metadata.labels, term.match_label_keys, term.mismatch_label_keys)
        return self._group(
            GroupRule(
                kind,
                self._rules.normalise(term.topology_key),
                self._namespaces.of(term, pod.metadata.namespace),
                compile_selector(term.label_selector).narrowed(own),
                selector_absent=term.label_selector is None,
            )
        )

    def _group(self, rule: GroupRule) -> Group:
        found = self.groups.get(rule)
        if found is None:
            found = self.groups[rule] = Group(rule)
            found.node_counts = np.zeros(len(self.nodes), dtype=np.int64)
            if rule.kind is not GroupKind.INVERSE:
                self._count_existing(found)
        return found

    def _count_existing(self, group: Group) -> None:
        rule, nodes = group.rule, self.nodes
        if not len(nodes.bound_nodes):
            return
        selected = np.array(
            [
                namespace in rule.namespaces and (rule.selector_absent or rule.selector.matches(pod_labels))
                for namespace, pod_labels in nodes.label_classes
            ],
            dtype=bool,
        )
        per_node = np.bincount(nodes.bound_nodes[selected[nodes.bound_kinds]], minlength=len(nodes))
        per_node = np.where(self.passing(rule.node_filter), per_node, 0)
        if group.is_host:
            group.node_counts = per_node.astype(np.int64)
            group.host_total = int(per_node.sum())
            return
        ids, values = nodes.column(rule.key)
        for index in np.flatnonzero(per_node).tolist():
            if ids[index] >= 0:
                group.add(values[ids[index]], int(per_node[index]))

    def guard(self, group: Group, index: int) -> None:
        """Record a bound pod with required anti-affinity on a machine."""
        if group.is_host:
            group.node_counts[index] += 1
            return
        ids, values = self.nodes.column(group.rule.key)
        if ids[index] >= 0:
            group.add(values[ids[index]], 1)

    # Domains.

    def passing(self, node_filter: NodeFilter) -> Bools:
        """Machines that a spread constraint counts."""
        found = self._passing.get(node_filter)
        if found is None:
            found = np.ones(len(self.nodes), dtype=bool)
            if node_filter.alternatives:
                found = np.zeros(len(self.nodes), dtype=bool)
                for alternative in node_filter.alternatives:
                    found |= self.nodes.compatible(self._sets[alternative])
            if node_filter.tolerations is not None:
                found = found & self.nodes.tolerated(node_filter.tolerations)
            self._passing[node_filter] = found
        return found

    def values(self, key: str) -> tuple[str, ...]:
        """Every value of a key that any pool or node knows, sorted."""
        found = self._all_values.get(key)
        if found is None:
            _, values = self.nodes.column(key)
            found = self._all_values[key] = tuple(sorted({*self._provided(key), *values}))
        return found

    def reachable(self, kind: Kind, key: str) -> tuple[str, ...]:
        """The known values of a key that a machine of this kind may still take."""
        found = self._reachable.get((kind.index, key))
        if found is None:
            wanted = kind.requirements.get_or_exists(key)
            found = tuple(value for value in self.values(key) if wanted.allows(value))
            self._reachable[(kind.index, key)] = found
        return found

    def known(self, group: Group, tolerations: tuple[Toleration, ...]) -> list[str]:
        """The domains of a group as a pod with these tolerations sees them, sorted."""
        rule = group.rule
        if rule.kind is GroupKind.INVERSE:
            # Another pod's anti-affinity: what this one tolerates does not matter, only where the others may be.
            return list(self.values(rule.key))
        restricted = rule.kind is not GroupKind.SPREAD or rule.node_filter.tolerations is not None
        question = (rule, tolerations if restricted else ())
        found = self._known.get(question)
        if found is None:
            domains = {
                value
                for value, taint_sets in self._provided(rule.key).items()
                if not restricted or any(first_untolerated(taints, tolerations) is None for taints in taint_sets)
            }
            ids, values = self.nodes.column(rule.key)
            # A machine that is leaving takes no pod: its domain would only hold the others down to what it lacks.
            stays = self.passing(rule.node_filter) & self.nodes.has_node & (np.arange(len(ids)) < self.nodes.targets)
            domains.update(values[i] for i in np.unique(ids[stays & (ids >= 0)]).tolist())
            found = self._known[question] = sorted(domains)
        # Pods stand in these, be they bound or placed just now on a machine whose Node has not appeared.
        others = [domain for domain in group.counts if domain not in found]
        return sorted([*found, *others]) if others else found

    def bind(self, group: Group) -> None:
        """Some pod insists on this spread, whatever preferences it gives up."""
        if group not in self._binding:
            self._binding.append(group)
        if group.rule.key not in self.binding_keys:
            self.binding_keys.append(group.rule.key)

    def newly_bound(self, before: Kind, after: Kind) -> list[tuple[Group, str]]:
        """Spreads that count a machine once it becomes another kind, with the domain in which they do."""
        question = (before.index, after.index)
        found = self._newly_bound.get(question)
        if found is None:
            found = self._newly_bound[question] = [
                (group, domain)
                for group in self._binding
                for domain in self.domains_taken(group, after)
                if domain not in self.domains_taken(group, before)
            ]
        return found

    def exceeds(self, group: Group, domain: str, more: int) -> bool:
        """Whether so many more pods in a domain break a spread, for a pod that may go to any domain."""
        known = self._domains.get(id(group))
        if known is None:
            known = self._domains[id(group)] = self.known(group, group.rule.node_filter.tolerations or ())
        lowest = min((group.counts.get(other, 0) for other in known), default=0)
        if len(known) < (group.rule.min_domains or 0):
            lowest = 0
        return group.counts.get(domain, 0) + more - lowest > group.rule.max_skew

    def _provided(self, key: str) -> dict[str, list[tuple[Taint, ...]]]:
        """Values of a key that pools can provide, each with the taints of the pools that do."""
        found = self._universe.get(key)
        if found is None:
            found = self._universe[key] = {}
            for template in self._templates:
                for value in sorted(template_values(template, key)):
                    found.setdefault(value, []).append(template.taints)
        return found

    # Recording placements.

    def domains_taken(self, group: Group, kind: Kind) -> tuple[str, ...]:
        """Domains in which a pod on a machine of that kind counts for the group."""
        question = (id(group), kind.index)
        found = self._kind_domains.get(question)
        if found is None:
            found = self._kind_domains[question] = self._taken(group, kind)
        return found

    def _taken(self, group: Group, kind: Kind) -> tuple[str, ...]:
        rule = group.rule
        if rule.kind is GroupKind.SPREAD and not self.counts_kind(rule.node_filter, kind):
            return ()
        if rule.key == labels.HOSTNAME:
            return (labels.HOSTNAME,)
        single = kind.single(rule.key)
        if single is not None:
            return (single,)
        if rule.kind in (GroupKind.ANTI_AFFINITY, GroupKind.INVERSE):
            return self.reachable(kind, rule.key)
        return ()

    def counts_kind(self, node_filter: NodeFilter, kind: Kind) -> bool:
        if node_filter.passes_all:
            return True
        if node_filter.tolerations is not None and kind.template.untolerated(node_filter.tolerations) is not None:
            return False
        if not node_filter.alternatives:
            return True
        return any(kind.requirements.compatible(self._sets[a]) for a in node_filter.alternatives)

    def record_nodes(self, counted: Iterable[Group], indexes: Ints, pods: Ints) -> None:
        for group in counted:
            rule = group.rule
            passing = self.passing(rule.node_filter)[indexes]
            if group.is_host:
                np.add.at(group.node_counts, indexes[passing], pods[passing])
                group.host_total += int(pods[passing].sum())
                continue
            ids, values = self.nodes.column(rule.key)
            for index, count, passes in zip(indexes.tolist(), pods.tolist(), passing.tolist(), strict=True):
                if passes and ids[index] >= 0:
                    group.add(values[ids[index]], count)

    def record_claims(self, counted: Iterable[Group], kind: Kind, claims: Ints, pods: Ints) -> None:
        """Count pods on claims that are all of one kind."""
        total = int(pods.sum())
        for group in counted:
            domains = self.domains_taken(group, kind)
            if not domains:
                continue
            if group.is_host:
                group.grow(int(claims.max()) + 1)
                group.claim_counts[claims] += pods
                group.host_total += total
                continue
            for domain in domains:
                group.add(domain, total)


def template_values(template: Template, key: str) -> set[str]:
    """The values of a key that machines of the template can have."""
    wanted = template.requirements.get_or_exists(key)
    found = {v for v in wanted.values if wanted.allows(v)} if not wanted.complement else set()
    column = template.table.type_keys.get(key)
    if column is None:
        return found
    usable = template.table.types_meeting(template.requirements)
    for index in np.unique(column.ids[usable]).tolist():
        if index < len(column.distinct) and not column.distinct[index].complement:
            found.update(value for value in column.distinct[index].values if wanted.allows(value))
    return found


def node_filter_of(
    selector: Mapping[str, str],
    terms: Sequence[Requirements],
    tolerations: tuple[Toleration, ...],
    sets: RequirementSets,
) -> NodeFilter:
    """The widest filter of a pod: its node selector with each required term, and its tolerations."""
    base = from_labels(selector)
    alternatives = [base.merged(term.values()) for term in terms] or ([base] if base else [])
    return NodeFilter(tuple(sets.intern(a) for a in alternatives), tolerations)
