"""What no fleet can undercut: a linear relaxation over total resources.

Machines may be bought in fractions, pods split over machines, and each resource placed on its own, but only on
machines that accept the pods' class. Everything a real plan must respect beyond that can only cost more, so the
value is a lower bound of every plan for the same pods.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from pykarpenter.core.cover.problem import Bools, CoverProblem, Floats, Ints


def quiet_solver() -> highspy.Highs:
    """One thread and a fixed seed: equal input gives equal output."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    return solver


# Machines of each set that the program starts with, and how many it takes in at a time.
_STARTED_WITH = 12
_ADDED_AT_ONCE = 24
# Machines compared with all others at a time: bounds the memory of the comparison.
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The relaxation's answer: its cost, what a unit of each resource is worth to each class, machines in fractions."""

    cost: float
    worth: Floats
    machines: Ints
    amounts: Floats

    def whole_machines(self) -> Ints:
        """Machines to have: the fractions rounded up."""
        return np.repeat(self.machines, np.ceil(self.amounts - 1e-6).astype(np.int64))


class Relaxation:
    """The relaxation of one problem, ready to be asked for several demands."""

    def __init__(self, problem: CoverProblem) -> None:
        self._problem = problem
        packed = np.packbits(problem.allowed, axis=0)
        known: dict[bytes, int] = {}
        self._set_of = np.array(
            [known.setdefault(packed[:, m].tobytes(), len(known)) for m in range(problem.machines)], np.int64
        )
        first = {int(group): machine for machine, group in reversed(list(enumerate(self._set_of)))}
        # Which classes each distinct set of machines accepts: `[A, C]`.
        self._accepts = np.array([problem.allowed[:, first[group]] for group in range(len(known))], bool)
        self.machines = self._undominated()
        signatures: dict[bytes, int] = {}
        columns = np.packbits(self._accepts, axis=0) if len(known) else np.zeros((0, problem.classes), np.uint8)
        self._member = np.array(
            [signatures.setdefault(columns[:, c].tobytes(), len(signatures)) for c in range(problem.classes)], np.int64
        )
        self._signatures = len(signatures)

    def _undominated(self) -> Ints:
        """Machines worth having: no other holds as much, for the same classes or more, at no higher price."""
        problem = self._problem
        kept: list[Ints] = []
        for group in range(len(self._accepts)):
            if self._accepts[group].any():
                kept.append(_pareto(problem, np.flatnonzero(self._set_of == group)))
            else:
                kept.append(np.zeros(0, np.int64))
        result: list[Ints] = []
        for group, machines in enumerate(kept):
            for other, rivals in enumerate(kept):
                wider = bool((self._accepts[other] | ~self._accepts[group]).all())
                if other == group or not wider or not len(machines):
                    continue
                beaten = (problem.capacity[rivals][None] >= problem.capacity[machines][:, None]).all(axis=2)
                beaten &= problem.price[rivals][None] <= problem.price[machines][:, None]
                machines = machines[~beaten.any(axis=1)]
            result.append(machines)
        return np.sort(np.concatenate(result)) if result else np.zeros(0, np.int64)

    def solve(self, demand: Ints, machines: Ints | None = None, free: Ints | None = None) -> Relaxed:
        """The cheapest fractions of machines for the demand; `free` is capacity that costs nothing."""
        problem = self._problem
        machines = self.machines if machines is None else machines
        if not len(machines) or not demand.any():
            return Relaxed(0.0, np.zeros(problem.requests.shape), machines, np.zeros(len(machines)))
        groups, machine_group = np.unique(self._set_of[machines], return_inverse=True)
        accepts = np.zeros((len(groups), self._signatures), bool)
        accepts[:, self._member] = self._accepts[groups]
        totals = np.zeros((self._signatures, problem.requests.shape[1]))
        np.add.at(totals, self._member, problem.requests * demand[:, None].astype(np.float64))
        totals[~accepts.any(axis=0)] = 0.0
        scale = np.maximum(totals.max(axis=0), 1.0)
        spare = None if free is None else np.maximum(free, 0) / scale
        capacity = problem.capacity[machines] / scale
        price = problem.price[machines].astype(np.float64)
        machine_group = machine_group.reshape(-1)
        program = _Program(totals / scale, accepts, spare)
        inside = _spaced(price, machine_group)
        while True:
            cost, worth, offered, amounts = program.solve(capacity[inside], machine_group[inside], price[inside])
            # A machine that would offer more than its price belongs into the program; most never do.
            excess = (capacity * offered[machine_group]).sum(axis=1) / np.maximum(price, 1e-12)
            missing = np.setdiff1d(np.flatnonzero(excess > 1.0 + 1e-9), inside)
            if not len(missing):
                break
            worst = missing[np.argsort(-excess[missing], kind="stable")][:_ADDED_AT_ONCE]
            inside = np.sort(np.concatenate([inside, worst]))
        everywhere = np.zeros(len(machines))
        everywhere[inside] = amounts
        return Relaxed(cost, (worth / scale)[self._member], machines, everywhere)

    def even_sized(self, demand: Ints) -> Ints | None:
        """Machines of about the size each gets when rules force many of them; None when no rule does.

        With prices linear in size the relaxation is as happy with tiny machines beside a huge one; pods are not.
        """
        problem = self._problem
        real = problem.real
        totals = problem.requests.T @ demand
        forced = totals[real:] / np.maximum(problem.capacity[:, real:].max(axis=0), 1) if real < len(totals) else []
        number = max(forced, default=0.0)
        if number < 2:
            return None
        average = totals[:real] / number
        capacity = problem.capacity[self.machines, :real]
        fitting = (capacity >= average).all(axis=1)
        ceiling = float(problem.price[self.machines[fitting]].min()) * 1.4 if fitting.any() else np.inf
        window = (capacity >= 0.8 * average).all(axis=1) & (problem.price[self.machines] <= ceiling)
        return self.machines[window] if window.any() else None

    def short_list(self, relaxed: Relaxed, number: int) -> Ints:
        """The machines the relaxation uses, and others of every size, enough to finish a rest with."""
        used = relaxed.machines[relaxed.amounts > 1e-9]
        found = [used]
        for group in range(len(self._accepts)):
            mine = self.machines[self._set_of[self.machines] == group]
            mine = mine[np.argsort(self._problem.price[mine], kind="stable")]
            # Small machines matter most for a rest: half of the list are the cheapest, the others are spaced out.
            found.append(mine[: number // 2])
            found.append(
                mine[np.unique(np.linspace(0, len(mine) - 1, number // 2).astype(np.int64))] if len(mine) else mine
            )
        return np.unique(np.concatenate(found))


def _spaced(price: Floats, group: Ints) -> Ints:
    """A few machines of every set and size to start the program with."""
    found = []
    for number in np.unique(group):
        mine = np.flatnonzero(group == number)
        mine = mine[np.argsort(price[mine], kind="stable")]
        found.append(mine[np.unique(np.linspace(0, len(mine) - 1, _STARTED_WITH).astype(np.int64))])
    return np.sort(np.concatenate(found))


def _pareto(problem: CoverProblem, machines: Ints) -> Ints:
    """Machines of one set that no other of the set beats in every resource and in price."""
    order = machines[np.lexsort((machines, -problem.capacity[machines].sum(axis=1), problem.price[machines]))]
    capacity = problem.capacity[order]
    # Resources that all machines have alike, as places under a rule, decide nothing.
    capacity = capacity[:, capacity.min(axis=0) != capacity.max(axis=0)]
    kept = np.zeros(0, np.int64)
    for start in range(0, len(order), _BLOCK):
        # Whoever comes earlier in the order costs no more; holding as much, it wins.
        rivals = np.concatenate([kept, np.arange(start, min(start + _BLOCK, len(order)))])
        mine = rivals[len(kept) :]
        beaten: Bools = rivals[None] < mine[:, None]
        for resource in range(capacity.shape[1]):
            beaten &= capacity[rivals, resource][None] >= capacity[mine, resource][:, None]
        kept = np.concatenate([kept, mine[~beaten.any(axis=1)]])
    return order[kept]


def resource_bound(problem: CoverProblem, free: Ints | None = None) -> tuple[float, Floats]:
    """The bound in $/h and the value of one unit of each resource at it, for each class: `[C, R]`.

    A class that no machine accepts is left out: no plan can place it, so it adds nothing to any plan's cost.
    """
    relaxed = Relaxation(problem).solve(problem.demand, free=free)
    return relaxed.cost, relaxed.worth


class _Program:
    """The relaxation seen from its prices: what may a unit of each resource be worth at most?

    max Σ totals·y, where y[s, r] is worth to signature s, u[a, r] to machines that accept the set a of signatures,
    y <= u wherever the set holds the signature, and no machine may offer more worth than its price. The duals of the
    machines' rows are how many of each to have. This form has a row per machine instead of a column per machine,
    signature and resource.
    """

    def __init__(self, totals: Floats, sets: Bools, spare: Floats | None) -> None:
        self._shape = totals.shape
        signatures, resources = totals.shape
        self._sets = np.vstack([sets, np.ones((1, signatures), bool)]) if spare is not None else sets
        self._offset = signatures * resources
        columns = self._offset + len(self._sets) * resources
        self._cost = np.zeros(columns)
        self._cost[: self._offset] = totals.reshape(-1)
        if spare is not None:
            # What is there already costs its worth: only the rest has to be bought.
            self._cost[columns - resources :] = -spare
        # One row for each resource that a signature wants and a set holds: y - u <= 0.
        group, signature, resource = np.nonzero(self._sets[:, :, None] & (totals > 0)[None])
        pairs = np.stack([signature * resources + resource, self._offset + group * resources + resource], axis=1)
        self._pairs: Ints = pairs.reshape(-1)

    def solve(self, capacity: Floats, group: Ints, price: Floats) -> tuple[float, Floats, Floats, Floats]:
        """The bound, the worth of a unit to each signature and each set of machines, and how many of each machine."""
        resources, offers = self._shape[1], len(self._pairs) // 2
        machine, resource = np.nonzero(capacity)
        lengths = np.concatenate([np.full(offers, 2), np.bincount(machine, minlength=len(capacity))])
        model = highspy.HighsLp()
        columns, rows = len(self._cost), len(lengths)
        model.num_col_, model.num_row_ = columns, rows
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_ = self._cost
        model.col_lower_ = np.zeros(columns)
        model.col_upper_ = np.full(columns, highspy.kHighsInf)
        model.row_lower_ = np.full(rows, -highspy.kHighsInf)
        model.row_upper_ = np.concatenate([np.zeros(offers), price])
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        offered = self._offset + group[machine] * resources + resource
        model.a_matrix_.index_ = np.concatenate([self._pairs, offered]).astype(np.int32)
        model.a_matrix_.value_ = np.concatenate([np.tile([1.0, -1.0], offers), capacity[machine, resource]])
        solver = quiet_solver()
        solver.passModel(model)
        solver.run()
        solution = solver.getSolution()
        found = np.array(solution.col_value)
        worth = found[: self._offset].reshape(self._shape)
        asked = found[self._offset :].reshape(-1, resources)
        amounts = np.abs(np.array(solution.row_dual)[offers:])
        return float(solver.getInfo().objective_function_value), worth, asked, amounts
