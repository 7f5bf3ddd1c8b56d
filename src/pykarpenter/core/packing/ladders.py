"""Rungs for every class: which topology groups it owns, counts in and must stay clear of."""

from __future__ import annotations

from collections.abc import Iterable

from pykarpenter.core.interning import RequirementSets
from pykarpenter.core.packing.classes import PodClass
from pykarpenter.core.packing.rungs import Consulted, Rung
from pykarpenter.core.packing.shapes import Wishes, ladder, wishes_of, without_preferences
from pykarpenter.core.packing.topology import Topology, node_filter_of
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.requirements import Requirements, from_expressions
from pykarpenter.core.topology.groups import Group, GroupKind, NodeFilter


class Ladders:
    """Prepares the classes of one decision for placing."""

    def __init__(
        self, topology: Topology, sets: RequirementSets, settings: PackingSettings, tolerate_preferences: bool
    ) -> None:
        self._topology = topology
        self._sets = sets
        self._settings = settings
        self._tolerate = tolerate_preferences
        self._respect = settings.preference_policy == "Respect"
        self._selecting: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[list[Group], list[Group]]] = {}

    def prepare(self, classes: Iterable[PodClass], in_batch: frozenset[str]) -> None:
        """Fill the classes' rungs and groups; all groups exist before anything is counted."""
        self._guard_bound_pods(in_batch)
        owned: list[tuple[PodClass, list[tuple[Wishes, list[Group], str]]]] = []
        for cls in classes:
            wishes = cls.wishes if self._respect else without_preferences(cls.wishes)
            rungs = []
            for rung, given_up in ladder(wishes, self._tolerate):
                rungs.append((rung, self._owned(cls, rung), given_up))
            cls.guards = [self._topology.affinity(GroupKind.INVERSE, term, cls.sample) for term in wishes.anti_affinity]
            owned.append((cls, rungs))
        for cls, rungs in owned:
            cls.counted_by, selecting = self._groups_selecting(cls)
            cls.rungs = [self._rung(cls, rung, groups, selecting, given_up) for rung, groups, given_up in rungs]
            for item in cls.rungs[-1].zonal:
                if item.group.rule.kind is GroupKind.SPREAD:
                    self._topology.bind(item.group)

    def _guard_bound_pods(self, in_batch: frozenset[str]) -> None:
        for index, pod in self._topology.nodes.guarded:
            if pod.key in in_batch:
                continue
            for term in wishes_of(pod.spec).anti_affinity:
                self._topology.guard(self._topology.affinity(GroupKind.INVERSE, term, pod), index)

    def _node_filter(self, wishes: Wishes) -> NodeFilter:
        rules = self._settings.label_rules
        terms = [from_expressions(term.match_expressions, rules) for term in wishes.required_terms]
        return node_filter_of(dict(wishes.node_selector), terms, wishes.tolerations, self._sets)

    def _owned(self, cls: PodClass, wishes: Wishes) -> list[Group]:
        topology, sample = self._topology, cls.sample
        found: list[Group] = []
        if wishes.spread:
            # A relaxed pod counts other machines: those that its fewer terms and new tolerations admit.
            node_filter = self._node_filter(wishes)
            found = [topology.spread(constraint, sample, node_filter) for constraint in wishes.spread]
        near = [*wishes.affinity, *(t.pod_affinity_term for t in wishes.preferred_affinity)]
        apart = [*wishes.anti_affinity, *(t.pod_affinity_term for t in wishes.preferred_anti_affinity)]
        found += [topology.affinity(GroupKind.AFFINITY, term, sample) for term in near]
        found += [topology.affinity(GroupKind.ANTI_AFFINITY, term, sample) for term in apart]
        return list(dict.fromkeys(found))

    def _groups_selecting(self, cls: PodClass) -> tuple[list[Group], list[Group]]:
        """Groups that count the class's pods, and groups that keep it away from others' anti-affinity."""
        key = (cls.namespace, tuple(sorted(cls.labels.items())))
        found = self._selecting.get(key)
        if found is None:
            labels = dict(cls.labels)
            selecting = [g for g in self._topology.groups.values() if g.rule.selects(cls.namespace, labels)]
            found = (
                [g for g in selecting if g.rule.kind is not GroupKind.INVERSE],
                [g for g in selecting if g.rule.kind is GroupKind.INVERSE and self._can_meet(g)],
            )
            self._selecting[key] = found
        return found

    def _can_meet(self, group: Group) -> bool:
        """Whether two pods can share a domain at all: over a key that nothing has, nobody is kept away (L6)."""
        return group.is_host or bool(self._topology.values(group.rule.key))

    def _rung(self, cls: PodClass, wishes: Wishes, owned: list[Group], selecting: list[Group], given_up: str) -> Rung:
        rules = self._settings.label_rules
        strict = wishes.strict(rules)
        full = wishes.full(rules) if self._respect else strict
        consulted = [Consulted(group, group in cls.counted_by) for group in owned]
        consulted += [Consulted(group, group in cls.guards) for group in selecting]
        return Rung(
            guests=self._guests(full, cls.demand.alternatives),
            strict=strict,
            tolerations=wishes.tolerations,
            hosts=[item for item in consulted if item.group.is_host],
            zonal=[item for item in consulted if not item.group.is_host],
            given_up=given_up,
        )

    def _guests(self, full: Requirements, alternatives: tuple[Requirements, ...]) -> tuple[int, ...]:
        if not alternatives:
            return (self._sets.intern(full),)
        return tuple(self._sets.intern(full.merged(alternative.values())) for alternative in alternatives)
