"""Karpenter's consolidation search on a recorded fleet, to its end: what our planner is measured against.

Empty machines first; then the longest prefix, by binary search over the savings order, that nothing or one cheaper
machine replaces; then single machines in that order. Budget 10 %, pods land where the simulation put them.
"""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

DATA = Path(__file__).parent / "data"
Shape = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of machine with what it has beside its DaemonSets: cpu in milli, memory in MiB."""

    name: str
    price: float
    cpu: int
    memory: int

    def holds(self, cpu: int, memory: int) -> bool:
        return self.cpu >= cpu and self.memory >= memory


@dataclass(slots=True)
class Machine:
    number: int
    kind: Kind
    pods: list[Shape]

    def free(self) -> list[int]:
        return [self.kind.cpu - sum(p[0] for p in self.pods), self.kind.memory - sum(p[1] for p in self.pods)]


@dataclass(slots=True)
class Fleet:
    """A fleet and how many pods were evicted so far."""

    kinds: list[Kind]
    machines: list[Machine]
    evictions: int = 0
    next_number: int = 0

    @property
    def price_per_hour(self) -> float:
        return math.fsum(machine.kind.price for machine in self.machines)


@dataclass(slots=True)
class _Claim:
    kinds: list[Kind]
    cpu: int = 0
    memory: int = 0
    pods: list[Shape] = field(default_factory=list)


@dataclass(slots=True)
class _Command:
    removed: list[Machine]
    taken_in: dict[int, list[Shape]]
    bought: Kind | None
    pods: list[Shape]


def load_fleet(name: str) -> Fleet:
    """A recorded fleet by name, e.g. `drip-101`."""
    data = json.loads(gzip.decompress((DATA / f"fleet-{name}.json.gz").read_bytes()))
    daemons = data["daemonset"]
    kinds = [
        Kind(
            entry["name"],
            entry["price"],
            entry["allocatable_cpu_m"] - daemons["cpu_m"],
            entry["allocatable_memory_mib"] - daemons["memory_mib"],
        )
        for entry in data["types"]
    ]
    by_name = {kind.name: kind for kind in kinds}
    machines = [
        Machine(number, by_name[entry["type"]], sorted(((p[0], p[1]) for p in entry["pods"]), reverse=True))
        for number, entry in enumerate(data["nodes"])
    ]
    return Fleet(kinds, machines, next_number=len(machines))


def consolidate(fleet: Fleet, budget: float = 0.10) -> Fleet:
    """Change the fleet until the search finds nothing more."""
    while True:
        fleet.machines = [machine for machine in fleet.machines if machine.pods]
        ordered = sorted(fleet.machines, key=lambda m: (-m.kind.price / (1 + len(m.pods)), m.number))
        allowed = ordered[: math.ceil(len(ordered) * budget)]
        command = _longest_prefix(fleet, allowed) or next(
            (found for machine in ordered if (found := _command(fleet, [machine])) is not None), None
        )
        if command is None:
            return fleet
        _execute(fleet, command)


def _longest_prefix(fleet: Fleet, ordered: list[Machine]) -> _Command | None:
    low, high = 1, min(len(ordered) - 1, 99)
    best: _Command | None = None
    while low <= high:
        middle = (low + high) // 2
        found = _command(fleet, ordered[: middle + 1])
        if found is not None:
            best, low = found, middle + 1
        else:
            high = middle - 1
    return best


def _command(fleet: Fleet, removed: list[Machine]) -> _Command | None:
    """The command for exactly these machines: no replacement, or one that is cheaper than all of them."""
    taken_in, claims = _simulate(fleet, removed)
    if len(claims) > 1:
        return None
    if not claims:
        return _Command(removed, taken_in, None, [])
    paid = math.fsum(machine.kind.price for machine in removed)
    options = [kind for kind in claims[0].kinds if kind.price < paid - 1e-12]
    if len(removed) > 1:
        going = {machine.kind.name for machine in removed}
        limit = min((kind.price for kind in options if kind.name in going), default=math.inf)
        options = [kind for kind in options if kind.price < limit - 1e-12]
    if not options:
        return None
    return _Command(removed, taken_in, min(options, key=lambda kind: kind.price), claims[0].pods)


def _simulate(fleet: Fleet, removed: list[Machine]) -> tuple[dict[int, list[Shape]], list[_Claim]]:
    """First fit in the order of machines, then the emptiest open claim, then a new one; large pods first."""
    going = {machine.number for machine in removed}
    free = {machine.number: machine.free() for machine in fleet.machines if machine.number not in going}
    taken_in: dict[int, list[Shape]] = {}
    claims: list[_Claim] = []
    for pod in sorted((pod for machine in removed for pod in machine.pods), reverse=True):
        target = next((n for n, room in free.items() if room[0] >= pod[0] and room[1] >= pod[1]), None)
        if target is not None:
            free[target][0] -= pod[0]
            free[target][1] -= pod[1]
            taken_in.setdefault(target, []).append(pod)
        elif not any(_join(claim, pod) for claim in sorted(claims, key=lambda claim: len(claim.pods))):
            claims.append(claim := _Claim(list(fleet.kinds)))
            _join(claim, pod)
    return taken_in, claims


def _join(claim: _Claim, pod: Shape) -> bool:
    kinds = [kind for kind in claim.kinds if kind.holds(claim.cpu + pod[0], claim.memory + pod[1])]
    if not kinds:
        return False
    claim.kinds, claim.cpu, claim.memory = kinds, claim.cpu + pod[0], claim.memory + pod[1]
    claim.pods.append(pod)
    return True


def _execute(fleet: Fleet, command: _Command) -> None:
    going = {machine.number for machine in command.removed}
    fleet.evictions += sum(len(machine.pods) for machine in command.removed)
    fleet.machines = [
        Machine(machine.number, machine.kind, machine.pods + command.taken_in.get(machine.number, []))
        for machine in fleet.machines
        if machine.number not in going
    ]
    if command.bought is not None:
        fleet.machines.append(Machine(fleet.next_number, command.bought, list(command.pods)))
        fleet.next_number += 1
