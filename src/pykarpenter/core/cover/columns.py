"""Column generation: a cover close to the bound from patterns that the duals ask for.

Patterns are first drawn from the demand, then priced by quick and exact fillings; the linear master is rounded down
and the rest covered greedily. Effort is counted in work, never in seconds: the seed is fixed, so equal input gives
an equal cover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import highspy
import numpy as np

from pykarpenter.core.cover.bound import Relaxation, quiet_solver
from pykarpenter.core.cover.filling import ExactFilling, by_draw
from pykarpenter.core.cover.greedy import default_weightings, greedy_cover
from pykarpenter.core.cover.problem import Cover, CoverProblem, Floats, Ints, Pattern

_WORTHWHILE = 1.0 + 1e-6
# Above this many class-machine pairs the exact bound costs more than it tells.
_PROVABLE = 2000


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a search may do."""

    draws: int
    rounds: int
    search_nodes: int
    machines: int = 6


SMALL = Effort(draws=5, rounds=6, search_nodes=20)
NORMAL = Effort(draws=200, rounds=5, search_nodes=20)
# Very large batches pay for more rounds of exact pricing: there a percent is real money.
LARGE = Effort(draws=50, rounds=20, search_nodes=20, machines=12)
THOROUGH = Effort(draws=600, rounds=12, search_nodes=50)
# One of several parts of a batch with many classes.
PART = Effort(draws=60, rounds=10, search_nodes=20)
# Above this many class-machine pairs only the promising machines are filled with one class each to begin with.
_SINGLES = 20_000


class Master:
    """min Σ price·x over known patterns, each class covered at least as often as demanded; kept warm."""

    def __init__(self, problem: CoverProblem) -> None:
        self._problem = problem
        self.machines: list[int] = []
        self.counts: list[Ints] = []
        self._known: set[tuple[int, bytes]] = set()
        self._solver = quiet_solver()
        for wanted in problem.demand:
            self._solver.addRow(float(wanted), highspy.kHighsInf, 0, np.zeros(0, np.int32), np.zeros(0))

    def add(self, machine: int, counts: Ints) -> bool:
        """Add a pattern; False when it is empty or known already."""
        key = (machine, counts.tobytes())
        if key in self._known or not counts.any():
            return False
        self._known.add(key)
        self.machines.append(machine)
        self.counts.append(counts)
        rows = np.flatnonzero(counts).astype(np.int32)
        values = counts[rows].astype(np.float64)
        self._solver.addCol(float(self._problem.price[machine]), 0.0, highspy.kHighsInf, len(rows), rows, values)
        return True

    def solve(self) -> Floats:
        """The dual price of one more pod of each class."""
        self._solver.run()
        return np.maximum(np.array(self._solver.getSolution().row_dual, np.float64), 0.0)

    def rounded_down(self) -> list[Pattern]:
        amounts = np.floor(np.array(self._solver.getSolution().col_value) + 1e-9).astype(np.int64)
        return [
            Pattern(self.machines[index], self.counts[index], int(amounts[index])) for index in np.flatnonzero(amounts)
        ]


@dataclass(frozen=True, slots=True)
class ColumnResult:
    """A cover, when every class fits somewhere, the best bound proven on the way, and the fillings worth knowing."""

    cover: Cover | None
    bound: float
    # Machine and pods of each class; what the duals asked for on the way.
    fillings: tuple[tuple[int, Ints], ...] = ()


def column_cover(
    problem: CoverProblem, effort: Effort, should_stop: Callable[[], bool], seed: int = 0, prove: bool = True
) -> ColumnResult:
    """A cover by column generation within the effort; `prove` also spends work on a better bound."""
    relaxation = Relaxation(problem)
    relaxed = relaxation.solve(problem.demand)
    bound, worth, machines = relaxed.cost, relaxed.worth, relaxation.machines
    value = (worth * problem.requests).sum(axis=1)
    master = Master(problem)
    chosen = _promising(problem, worth, machines, effort.machines)
    few = problem.classes * len(machines) <= _SINGLES
    for machine in machines.tolist() if few else [*chosen, *_cheapest_alone(problem, machines)]:
        most = problem.most_of_each(machine)
        for index in np.flatnonzero(most):
            single = np.zeros(problem.classes, np.int64)
            single[index] = most[index]
            master.add(machine, single)
    _draw_patterns(problem, master, chosen, value, effort.draws, seed, should_stop)
    duals = master.solve()
    exact = {machine: ExactFilling(problem, machine) for machine in chosen}
    for _ in range(effort.rounds):
        if should_stop() or not _price_out(problem, master, exact, duals, effort.search_nodes):
            break
        duals = master.solve()
    if prove and not should_stop() and problem.classes * len(machines) <= _PROVABLE:
        every = [exact.get(int(m)) or ExactFilling(problem, int(m)) for m in machines]
        bound = max(bound, _farley(problem, every, duals, effort.search_nodes))
    fillings = tuple(zip(master.machines, master.counts, strict=True))
    return ColumnResult(_finish(problem, master.rounded_down(), value, machines), bound, fillings)


def _farley(problem: CoverProblem, fillings: list[ExactFilling], duals: Floats, search_nodes: int) -> float:
    """Duals scaled down until no filling of any machine is worth more than the machine: a bound at any time."""
    overvalued = max(f.best(duals, search_nodes)[1] / float(problem.price[f.machine]) for f in fillings)
    return float(duals @ problem.demand) / max(1.0, overvalued)


def _promising(problem: CoverProblem, worth: Floats, machines: Ints, number: int) -> list[int]:
    """The machines that offer most of what is scarce per dollar, at least one for each class."""
    average = worth[problem.demand > 0].mean(axis=0) if problem.demand.any() else worth.mean(axis=0)
    ratio = (problem.capacity[machines] @ average) / np.maximum(problem.price[machines], 1e-9)
    order = [int(machines[i]) for i in np.argsort(-ratio, kind="stable")]
    chosen = order[:number]
    for index in range(problem.classes):
        if not any(problem.allowed[index, m] for m in chosen):
            chosen += [m for m in order if problem.allowed[index, m]][:1]
    return chosen


def _cheapest_alone(problem: CoverProblem, machines: Ints) -> list[int]:
    """For each class the machine that is cheapest per pod when it holds nothing else."""
    found: list[int] = []
    for index in range(problem.classes):
        need = problem.requests[index]
        asked = need > 0
        room = (problem.capacity[machines][:, asked] // need[asked]).min(axis=1)
        room = np.where(problem.allowed[index, machines], np.minimum(room, problem.demand[index]), 0)
        if room.any():
            each = np.where(room > 0, problem.price[machines] / np.maximum(room, 1), np.inf)
            found.append(int(machines[int(each.argmin())]))
    return list(dict.fromkeys(found))


def _draw_patterns(
    problem: CoverProblem,
    master: Master,
    machines: list[int],
    value: Floats,
    draws: int,
    seed: int,
    should_stop: Callable[[], bool],
) -> None:
    draw = np.random.default_rng(seed)
    for machine in machines:
        most = problem.most_of_each(machine)
        for _ in range(draws):
            if should_stop():
                return
            master.add(machine, by_draw(problem, machine, value, most, draw))


def _price_out(
    problem: CoverProblem, master: Master, exact: dict[int, ExactFilling], duals: Floats, search_nodes: int
) -> bool:
    """Add fillings worth more than their machine costs; False when there is none."""
    added = False
    for machine, filling in exact.items():
        counts, _ = filling.best(duals, search_nodes)
        if float(counts @ duals) > float(problem.price[machine]) * _WORTHWHILE:
            added = master.add(machine, counts) or added
    return added


def _finish(problem: CoverProblem, patterns: list[Pattern], value: Floats, machines: Ints) -> Cover | None:
    """Whole machines of the linear solution, trimmed to the demand, and a greedy cover of the rest."""
    remaining = problem.demand.copy()
    kept: list[Pattern] = []
    for pattern in patterns:
        times = pattern.times
        full = pattern.counts > 0
        whole = min(times, int((remaining[full] // pattern.counts[full]).min()))
        if whole:
            kept.append(Pattern(pattern.machine, pattern.counts, whole))
            remaining = remaining - pattern.counts * whole
        for _ in range(times - whole):
            trimmed = np.minimum(pattern.counts, remaining)
            if trimmed.any():
                kept.append(Pattern(pattern.machine, trimmed, 1))
                remaining = remaining - trimmed
    rest: Cover | None = Cover((), 0.0)
    if remaining.any():
        rest = greedy_cover(problem.with_demand(remaining), value, default_weightings(problem), machines)
    if rest is None:
        return None
    cost = sum(float(problem.price[p.machine]) * p.times for p in kept) + rest.cost
    return Cover((*kept, *rest.patterns), cost)
