"""Describes machines: one `NodeView` each, made anew only when something about the machine changed.

Pods count on a machine when they are bound to it or wait for it. A machine that turns out too small for a pod that
waits gives it back to planning, which may touch other machines; so describing goes on until nothing is left to do.
Never decides what happens to a machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pykarpenter.api.pods import Pod
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.resources import fits, pod_requests, subtract, total
from pykarpenter.core.snapshot import NodeView
from pykarpenter.state.arrivals import Arrivals
from pykarpenter.state.machines import Machine, Machines
from pykarpenter.state.marks import DeletionMarks, Nominations
from pykarpenter.state.pods import PodIndex
from pykarpenter.state.tables import Table
from pykarpenter.state.usage import PoolUsage, present
from pykarpenter.state.views import build_view, is_launched


@dataclass(slots=True)
class Sources:
    """What descriptions are made of; whoever changes a part marks the machines it touches as dirty."""

    machines: Machines
    pods: PodIndex
    arrivals: Arrivals
    marks: DeletionMarks = field(default_factory=DeletionMarks)
    nominations: Nominations = field(default_factory=Nominations)
    instance_types: Table[tuple[InstanceType, ...]] = field(default_factory=Table)
    # Virtual pods by buffer, and how many of them the last plan put on each machine, by its name.
    buffer_pods: Table[tuple[Pod, ...]] = field(default_factory=Table)
    buffer_counts: Mapping[str, int] = field(default_factory=dict)


class Descriptions:
    """Every machine as scheduling sees it, and the sums of each pool."""

    def __init__(self, sources: Sources) -> None:
        self._from = sources
        self._machines = sources.machines
        self._views: Table[NodeView] = Table()
        self._ordered: tuple[NodeView, ...] | None = ()
        self.usage = PoolUsage()
        self.present = PoolUsage(present)
        # Machines that came, became ready, or were marked or unmarked: consolidation may find something new.
        self.turns = 0

    def ordered(self) -> tuple[NodeView, ...]:
        """Every machine by name; the same tuple until something changes."""
        self.refresh()
        if self._ordered is None:
            self._ordered = tuple(sorted(self._views.values(), key=lambda view: view.name))
        return self._ordered

    def of(self, machine_id: str) -> NodeView | None:
        self.refresh()
        return self._views.get(machine_id)

    def some(self, at_most: int) -> bool:
        """Describe that many of the machines that changed; whether there are more."""
        for machine_id in list(itertools.islice(self._machines.dirty, at_most)):
            del self._machines.dirty[machine_id]
            self._describe(machine_id)
            self._ordered = None
        return bool(self._machines.dirty)

    def refresh(self) -> None:
        # Describing a machine can free pods that wait for it, which touches the machines they are on.
        while self._machines.dirty:
            dirty, self._machines.dirty = self._machines.dirty, {}
            for machine_id in dirty:
                self._describe(machine_id)
            self._ordered = None

    def _describe(self, machine_id: str) -> None:
        before = self._views.get(machine_id)
        machine = self._machines.resolve(machine_id)
        after = self._build(machine) if machine is not None else None
        if before is not None:
            self.usage.remove(before)
            self.present.remove(before)
            if after is None:
                self._views.drop(machine_id)
        if after is not None:
            self.usage.add(after)
            self.present.add(after)
            self._views.put(machine_id, after)
            if before is None or (before.initialized, before.marked_for_deletion) != (
                after.initialized,
                after.marked_for_deletion,
            ):
                self.turns += 1

    def _build(self, machine: Machine) -> NodeView:
        claim, node = machine.claim, machine.node
        bound = self._from.pods.on_node(node.name) if node is not None else {}
        returning = self._from.pods.returning_from(node.name) if node is not None else {}
        pool = claim.pool_name if claim is not None else ""
        draft = build_view(
            machine,
            bound.values(),
            managed=claim is not None or (node is not None and self._machines.is_managed_node(node)),
            is_marked=machine.provider_id in self._from.marks,
            nominated_until=self._from.nominations.until(machine.id),
            types=self._from.instance_types.get(pool) or (),
            buffer_pods=self._from.buffer_counts.get(machine.name, 0),
            returning=returning.values(),
        )
        pods = self._with_expected(draft)
        return draft if pods is draft.pods else replace(draft, pods=pods)

    def _with_expected(self, view: NodeView) -> tuple[Pod, ...]:
        """The pods that count as being on the machine: bound ones, and those that wait for it."""
        arrivals = self._from.arrivals
        if view.marked_for_deletion:
            staying = tuple(pod for pod in view.pods if arrivals.claim_of(pod.key) is None)
            return staying if len(staying) != len(view.pods) else view.pods
        waiting = arrivals.pods_of(view.claim.name) if view.claim is not None else {}
        if not waiting:
            return view.pods
        on_node = {pod.key for pod in view.pods}
        arriving = [self._from.pods.get(key) or self._virtual(key) for key in sorted(waiting) if key not in on_node]
        kept = self._that_fit(view, [pod for pod in arriving if pod is not None])
        return tuple(sorted((*view.pods, *kept), key=lambda pod: pod.key))

    def _that_fit(self, view: NodeView, arriving: list[Pod]) -> list[Pod]:
        """A machine that turned out smaller than planned, or was filled by others, gives pods back to planning."""
        if view.claim is None or not is_launched(view.claim):
            return arriving
        room = subtract(view.allocatable, total(pod_requests(pod) for pod in view.pods))
        kept: list[Pod] = []
        for pod in arriving:
            requests = pod_requests(pod)
            if fits(requests, room):
                kept.append(pod)
                room = subtract(room, requests)
            else:
                self._from.arrivals.forget_pod(pod.key)
        return kept

    def _virtual(self, key: str) -> Pod | None:
        for pods in self._from.buffer_pods.values():
            for pod in pods:
                if pod.key == key:
                    return pod
        return None
