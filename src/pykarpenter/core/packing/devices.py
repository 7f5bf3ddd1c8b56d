"""Devices on machines: whether a machine, existing or planned, can give a pod the devices of its claims.

Asked like attachment limits, machine by machine. A planned machine is narrowed to the types that bring the devices
and to where devices of the cluster can be reached. What was found is kept until the pod is placed there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pykarpenter.core.devices.consumption import Usage, add
from pykarpenter.core.devices.demand import ClaimDemand, DemandError, DemandReader, DeviceDemand
from pykarpenter.core.devices.ledger import Granted, Holder, Ledger, in_use, is_leaving
from pykarpenter.core.devices.placing import Term, labels_of
from pykarpenter.core.devices.pools import PROMISED
from pykarpenter.core.devices.search import MAX_TRIES, MAX_TRIES_IN_ALL, Matcher, Pick, S, Search
from pykarpenter.core.interning import Bools, Ints
from pykarpenter.core.packing.claims import ClaimTable
from pykarpenter.core.packing.classes import PodClass
from pykarpenter.core.packing.device_supply import DeviceSupply, node_name
from pykarpenter.core.packing.kinds import Kind, KindTable
from pykarpenter.core.packing.node_table import NodeTable
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.requirements import Requirements
from pykarpenter.core.snapshot import ClusterSnapshot

UNREACHABLE = "no instance type is left that the devices can be reached from"


@dataclass(slots=True)
class _Proposal:
    """What placing the pod would commit: per group of types the devices, and which claims they are for."""

    picks: dict[int, list[Pick]] = field(default_factory=dict)
    claims: tuple[str, ...] = ()


class DevicePlaces:
    """The devices of one decision, and who holds them."""

    def __init__(
        self,
        kinds: KindTable,
        nodes: NodeTable,
        snapshot: ClusterSnapshot,
        settings: PackingSettings,
        leaving: frozenset[str],
    ) -> None:
        self._kinds = kinds
        self._nodes = nodes
        self._claims = snapshot.devices.claims
        self._rules = settings.label_rules
        self._leaving = leaving
        self._supply = DeviceSupply(nodes, snapshot, settings.label_rules)
        self._matcher = Matcher()
        self._reader = DemandReader(snapshot.devices, settings.label_rules)
        self._seated = False
        self._proposals: dict[int, _Proposal] = {}
        # Tries of failed searches for the same claims.
        self._spent: dict[tuple[int, ...], int] = {}
        # Questions answered with no, and why.
        self._hopeless: dict[tuple[object, ...], str] = {}
        # Planned machines that have nothing left for pods that ask the same, and why; asked thousands of times.
        self._full: dict[tuple[tuple[tuple[int, ...], bytes], int, int] | None, str] = {}
        self._last_asked: tuple[tuple[int, int], tuple[tuple[int, ...], bytes] | None] = ((-1, -1), None)
        self._drivers: dict[Holder, dict[int, frozenset[str]]] = {}
        # Why the last question was answered with no.
        self.reason = ""

    @cached_property
    def _ledger(self) -> Ledger:
        claims = [claim for _, claim in sorted(self._claims.items())]
        return Ledger(in_use(claims, self._leaving, self._supply.devices))

    def _open(self, demand: DeviceDemand) -> list[ClaimDemand]:
        """The claims that still need devices."""
        return [claim for claim in demand if claim.key not in self._ledger.granted and not self._is_allocated(claim)]

    def _is_allocated(self, claim: ClaimDemand) -> bool:
        namespace = claim.key.partition("/")[0]
        return claim.reach is not None and not is_leaving(namespace, claim.reserved_for, self._leaving)

    def _settled(self, demand: DeviceDemand) -> Iterator[tuple[ClaimDemand, tuple[Term, ...], Holder | None]]:
        """The claims that have devices: where these can be reached, and the machine they are part of, if planned."""
        for claim in demand:
            granted = self._ledger.granted.get(claim.key)
            if granted is not None:
                yield claim, (Term(None, granted.requirements),), granted.holder if granted.tied else None
            elif claim.reach is not None and self._is_allocated(claim):
                yield claim, claim.reach, None

    # Machines that exist.

    def node_mask(self, demand: DeviceDemand) -> Bools | None:
        """Machines that may do; None when the claims do not say."""
        self._seat()
        return self._supply.having_devices if self._open(demand) else None

    def fit_on_node(self, index: int, cls: PodClass) -> bool:
        """Whether the machine can give the pod its devices; remembers how."""
        self._seat()
        proposal = self._on_node(index, cls.devices)
        if proposal is not None:
            self._proposals[cls.index] = proposal
        return proposal is not None

    def _seat(self) -> None:
        """Give pods that wait for a machine its devices before anybody else gets them."""
        if self._seated:
            return
        self._seated = True
        for index, view in enumerate(self._nodes.views[: self._nodes.targets]):
            for pod in view.pods:
                if pod.spec.node_name or not pod.spec.resource_claims or pod.key in self._leaving:
                    continue
                with suppress(DemandError):
                    proposal = self._on_node(index, self._reader.demand(pod))
                    if proposal is not None:
                        self._commit(("node", index), proposal)

    def _on_node(self, index: int, demand: DeviceDemand) -> _Proposal | None:
        view = self._nodes.views[index]
        name, own = node_name(view), labels_of(view.labels, self._rules)
        holder: Holder = ("node", index)
        for claim, terms, tied in self._settled(demand):
            if (tied is not None and tied != holder) or not any(term.admits(name, own) for term in terms):
                self.reason = f"claim {claim.key}: its devices cannot be reached from node {name}"
                return None
        wanted = self._open(demand)
        picks: dict[int, list[Pick]] = {0: []}
        if wanted:
            question = (_signature(wanted), holder, self._epoch)
            if question in self._hopeless:
                self.reason = self._hopeless[question]
                return None
            used = self._ledger.used(holder, 0, self._supply.taken_early(index, self._ledger.fixed))
            supply = self._supply.of_node(index)
            found = self._run(Search[bool](supply, used, self._matcher, _unchanged, self._effort(wanted)), wanted, True)
            if isinstance(found, str):
                self.reason = self._hopeless[question] = found
                return None
            picks[0] = found[0]
        return _Proposal(picks, tuple(claim.key for claim in wanted))

    def place_on_node(self, index: int, cls: PodClass) -> None:
        self._commit(("node", index), self._proposals.pop(cls.index))

    def _effort(self, wanted: list[ClaimDemand]) -> int:
        """Tries for the next search: claims that are hard on every machine must not hold up other pods."""
        return min(MAX_TRIES, MAX_TRIES_IN_ALL - self._spent.get(_signature(wanted), 0))

    def _run(self, search: Search[S], wanted: list[ClaimDemand], state: S) -> tuple[list[Pick], S] | str:
        found = search.run(wanted, state)
        signature = _signature(wanted)
        if isinstance(found, str):
            self._spent[signature] = self._spent.get(signature, 0) + search.tries
        return found

    # Machines being planned.

    def narrowed(self, cls: PodClass, kind: Kind, claims: ClaimTable, position: int | None) -> Kind | None:
        """The kind with only what can give the pod its devices beside what the claim holds; remembers how."""
        self._seat()
        asked = None if position is None else self._asked(cls)
        question = None if asked is None or position is None else (asked, position, kind.index)
        if question in self._full:
            self.reason = self._full[question]
            return None
        found = self._looked_for(cls, kind, claims, position)
        if found is None and question is not None:
            self._full[question] = self.reason
        return found

    def _asked(self, cls: PodClass) -> tuple[tuple[int, ...], bytes] | None:
        """What the pod asks of any planned machine; None when that depends on more than the machine itself."""
        if self._supply.is_shared:
            return None
        state = (cls.index, self._ledger.version)
        if self._last_asked[0] != state:
            wanted = self._open(cls.devices)
            alone = len(wanted) == len(cls.devices)
            self._last_asked = (state, (_signature(wanted), cls.vector.tobytes()) if alone else None)
        return self._last_asked[1]

    def _looked_for(self, cls: PodClass, kind: Kind, claims: ClaimTable, position: int | None) -> Kind | None:
        self._release(claims)
        used = cls.vector if position is None else claims.used[position] + cls.vector
        holder: Holder | None = None if position is None else ("claim", position)
        settled = self._at_settled(cls, kind, used, holder)
        if settled is None:
            return None
        wanted = self._open(cls.devices)
        if not wanted:
            groups = self._ledger.groups(holder)
            self._proposals[cls.index] = _Proposal({group: [] for group in groups or ()})
            return settled
        question = (_signature(wanted), (holder, settled.index, cls.vector.tobytes()), self._epoch)
        if question in self._hopeless:
            self.reason = self._hopeless[question]
            return None
        found = self._searched(cls, wanted, settled, used, holder)
        if found is None:
            self._hopeless[question] = self.reason
        return found

    @property
    def _epoch(self) -> int:
        """Machines only fill up, so what failed once fails again; but what they share can be given back."""
        return self._ledger.version if self._supply.is_shared else 0

    def _at_settled(self, cls: PodClass, kind: Kind, used: Ints, holder: Holder | None) -> Kind | None:
        """The kind where the claims that have devices can be used."""
        for claim, terms, tied in self._settled(cls.devices):
            if tied is not None and tied != holder:
                self.reason = (
                    f"claim {claim.key}: its devices are part of another machine, which has no room for the pod"
                )
                return None
            self.reason = f"claim {claim.key}: its devices cannot be reached from a new machine"
            options = [found for term in terms if (found := self._merged(kind, term)) is not None]
            reachable = next((found for found in options if len(found.surviving(used))), None)
            if reachable is None:
                return None
            kind = reachable
        return kind

    def _searched(
        self, cls: PodClass, wanted: list[ClaimDemand], kind: Kind, used: Ints, holder: Holder | None
    ) -> Kind | None:
        """One search for each group of types; where one of them narrows the machine, the next must follow."""
        row_groups = self._supply.groups(kind.template.table)
        mine = self._ledger.groups(holder)
        picks: dict[int, list[Pick]] = {}
        # Of the groups that have devices the one that got furthest says most.
        reasons: list[tuple[bool, int, str]] = []
        state = kind
        for group in self._ordered(kind, kind.surviving(used), row_groups):
            if mine is not None and group not in mine:
                continue

            def narrow(at: Kind, term: Term, group: int = group) -> Kind | None:
                found = self._merged(at, term)
                return found if found is not None and (row_groups[found.surviving(used)] == group).any() else None

            if state is not kind and not (row_groups[state.surviving(used)] == group).any():
                continue
            supply = self._supply.of_group(group)
            used_here = self._ledger.used(holder, group)
            search = Search[Kind](supply, used_here, self._matcher, narrow, self._effort(wanted))
            found = self._run(search, wanted, state)
            if isinstance(found, str):
                reasons.append((bool(supply.candidates), search.progress, found))
            else:
                picks[group], state = found
        state = self._kinds.restrict(state, np.isin(row_groups, list(picks)))
        left = row_groups[state.surviving(used)]
        picks = {group: picked for group, picked in picks.items() if (left == group).any()}
        if not picks:
            self.reason = max(reasons)[2] if reasons else UNREACHABLE
            return None
        self._proposals[cls.index] = _Proposal(picks, tuple(claim.key for claim in wanted))
        return state

    def _merged(self, kind: Kind, term: Term) -> Kind | None:
        """The kind once it is where the term says; a node that has a name already is no new machine."""
        if term.names is not None:
            return None
        return self._kinds.merge(kind, self._kinds.sets.intern(term.requirements))

    @staticmethod
    def _ordered(kind: Kind, rows: Ints, row_groups: Ints) -> list[int]:
        """The groups of the rows, the one with the cheapest type first."""
        price = kind.selection.price[kind.template.table.row_type[rows]]
        order = rows[np.argsort(price, kind="stable")]
        return list(dict.fromkeys(row_groups[order].tolist()))

    def place_on_claim(self, cls: PodClass, claims: ClaimTable, position: int) -> None:
        holder: Holder = ("claim", position)
        self._commit(holder, self._proposals.pop(cls.index))
        drivers = [set(found) for found in self._drivers.get(holder, {}).values()]
        # Whichever type is bought, the node waits only for drivers that each of them brings.
        claims.devices[position] = tuple(sorted(set.intersection(*drivers))) if drivers else ()

    def _commit(self, holder: Holder, proposal: _Proposal) -> None:
        usages: dict[int, Usage] = {}
        drivers = self._drivers.get(holder, {})
        after: dict[int, frozenset[str]] = {}
        for group, picks in proposal.picks.items():
            usages[group] = {}
            for pick in picks:
                add(usages[group], pick.usage)
            after[group] = drivers.get(group, frozenset()) | {pick.device.id.driver for pick in picks}
        if usages:
            self._ledger.commit(holder, usages)
            self._drivers[holder] = after
        every = [pick for picks in proposal.picks.values() for pick in picks]
        for index, key in enumerate(proposal.claims):
            own = [pick for pick in every if pick.claim == index]
            reach = Requirements(item for pick in own if pick.term for item in pick.term.requirements.values())
            tied = any(pick.device.id.origin == PROMISED or pick.device.scope.is_local for pick in own)
            self._ledger.granted[key] = Granted(holder, tied, reach)

    def _release(self, claims: ClaimTable) -> None:
        """Types that later pods ruled out give back what they held."""
        for kind_of_holder, position in self._ledger.undecided():
            if kind_of_holder == "claim":
                kind = self._kinds.kinds[int(claims.kinds[position])]
                rows = kind.surviving(claims.used[position])
                alive = set(self._supply.groups(kind.template.table)[rows].tolist())
                self._ledger.keep((kind_of_holder, position), alive)


def _signature(wanted: list[ClaimDemand]) -> tuple[int, ...]:
    """Claims that ask for the same were read once, so they share what they ask for."""
    return tuple(part for claim in wanted for part in (id(claim.requests), id(claim.matches)))


def _unchanged(state: bool, _: Term) -> bool:
    return state
