"""A running fleet as arrays: machines with what they hold, kinds of machines to buy, classes of equal pods.

Only giving up a machine displaces pods, so every plan is a set of commands "these go, those come". What is not in
the arrays (topology, budgets, PDBs) is checked by the full simulation before anything leaves the planner.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pykarpenter.core.cover.problem import Bools, CoverProblem, Floats, Ints


@dataclass(frozen=True, slots=True)
class FleetProblem:
    """`node_free[N, R]` is what a machine has left beside its pods; `node_pods[N, C]` counts its movable pods."""

    kinds: CoverProblem
    node_price: Floats
    node_free: Ints
    node_pods: Ints
    node_removable: Bools
    node_accepts: Bools
    # What moving one pod of a class counts, 1 for an ordinary pod.
    weight: Floats

    @property
    def nodes(self) -> int:
        return int(self.node_price.shape[0])


@dataclass(frozen=True, slots=True)
class Purchase:
    """A machine to buy and the pods it is bought for."""

    kind: int
    counts: Ints


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What the fleet would look like: machines given up, machines bought, pods taken in by machines that stay."""

    removed: tuple[int, ...]
    bought: tuple[Purchase, ...]
    # Pods taken in, by machine that stays.
    moved_in: tuple[tuple[int, Ints], ...]
    price_per_hour: float
    displaced: float


@dataclass(slots=True)
class Draft:
    """A fleet under change; rows up to `nodes` are the machines that exist, later rows are bought."""

    alive: Bools
    kind: Ints
    price: Floats
    free: Ints
    accepts: Bools
    taken_in: Ints
    displaced: float
    cost: float
    spare: list[int] = field(default_factory=list)

    def give_up(self, problem: FleetProblem, row: int) -> None:
        """A machine that exists goes; whoever calls finds places for its pods and for those it had taken in."""
        self.displaced += float(problem.node_pods[row] @ problem.weight)
        self.alive[row] = False
        self.taken_in[row] = 0
        self.cost -= float(self.price[row])

    def buy(self, kinds: CoverProblem, kind: int, counts: Ints) -> None:
        """One more machine, bought for these pods."""
        row = self.spare.pop()
        self.alive[row] = True
        self.kind[row] = kind
        self.price[row] = kinds.price[kind]
        self.free[row] = kinds.capacity[kind] - counts @ kinds.requests
        self.accepts[row] = kinds.allowed[:, kind]
        self.taken_in[row] = counts
        self.cost += float(kinds.price[kind])

    def drop_purchase(self, row: int) -> None:
        """A machine is not bought after all."""
        self.alive[row] = False
        self.cost -= float(self.price[row])
        self.taken_in[row] = 0
        self.spare.append(row)

    def copy(self) -> Draft:
        return Draft(
            self.alive.copy(),
            self.kind.copy(),
            self.price.copy(),
            self.free.copy(),
            self.accepts.copy(),
            self.taken_in.copy(),
            self.displaced,
            self.cost,
            list(self.spare),
        )


def first_draft(problem: FleetProblem) -> Draft:
    """The fleet as it is, with rows to spare for what may be bought."""
    nodes, extra = problem.nodes, problem.nodes + 16
    resources, classes = problem.kinds.requests.shape[1], problem.kinds.classes
    rows = nodes + extra
    draft = Draft(
        alive=np.zeros(rows, np.bool_),
        kind=np.full(rows, -1, np.int64),
        price=np.zeros(rows),
        free=np.zeros((rows, resources), np.int64),
        accepts=np.zeros((rows, classes), np.bool_),
        taken_in=np.zeros((rows, classes), np.int64),
        displaced=0.0,
        cost=float(problem.node_price.sum()),
        spare=list(range(rows - 1, nodes - 1, -1)),
    )
    draft.alive[:nodes] = True
    draft.price[:nodes] = problem.node_price
    draft.free[:nodes] = problem.node_free
    draft.accepts[:nodes] = problem.node_accepts
    return draft


def as_plan(problem: FleetProblem, draft: Draft) -> FleetPlan:
    nodes = problem.nodes
    removed = tuple(int(i) for i in np.flatnonzero(~draft.alive[:nodes]))
    bought = tuple(
        Purchase(int(draft.kind[i]), draft.taken_in[i].copy()) for i in range(nodes, len(draft.alive)) if draft.alive[i]
    )
    moved_in = tuple(
        (int(i), draft.taken_in[i].copy()) for i in range(nodes) if draft.alive[i] and draft.taken_in[i].any()
    )
    return FleetPlan(removed, bought, moved_in, draft.cost, draft.displaced)
