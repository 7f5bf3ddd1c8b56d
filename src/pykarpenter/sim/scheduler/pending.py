"""The line of pods that wait for a node, grouped by shape, in kube-scheduler's order: priority, then arrival.

When one pod of a shape fits nowhere, the others of its shape are not tried before supply changes: a wave of ten
thousand equal pods costs one attempt, not ten thousand.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from pykarpenter.api.pods import Pod
from pykarpenter.sim.scheduler.shapes import shape_key


def group_key(pod: Pod) -> bytes:
    """Pods of one shape share their fate, unless room is kept for one of them on a node of its own."""
    nominated = pod.status.nominated_node_name
    return shape_key(pod) + b"@" + nominated.encode() if nominated else shape_key(pod)


@dataclass(slots=True)
class Group:
    """Waiting pods of one shape, in order of arrival."""

    key: bytes
    priority: int
    pods: dict[str, Pod] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    # Pods that have not been told yet that they fit nowhere, and what the others were told.
    untold: dict[str, None] = field(default_factory=dict)
    told: str = ""

    def head(self) -> Pod | None:
        return next(iter(self.pods.values()), None)


class PendingPods:
    def __init__(self) -> None:
        self._groups: dict[bytes, Group] = {}
        self._group_of: dict[str, bytes] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, pod_key: str) -> bool:
        return pod_key in self._group_of

    def put(self, pod: Pod) -> None:
        """Enter a pod or its new state; a state that changes nothing for the scheduler keeps its place."""
        key = group_key(pod)
        before = self._group_of.get(pod.key)
        if before == key:
            self._groups[key].pods[pod.key] = pod
            return
        if before is not None:
            self.drop(pod.key)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, pod.spec.priority or 0)
        self._arrivals += 1
        group.pods[pod.key] = pod
        group.arrivals[pod.key] = self._arrivals
        group.untold[pod.key] = None
        self._group_of[pod.key] = key

    def drop(self, pod_key: str) -> None:
        key = self._group_of.pop(pod_key, None)
        if key is None:
            return
        group = self._groups[key]
        for entries in (group.pods, group.arrivals, group.untold):
            entries.pop(pod_key, None)
        if not group.pods:
            del self._groups[key]

    def round(self) -> Iterator[Group]:
        """Groups in the order in which their first pods are due; a group comes again while its head keeps leaving.

        The caller takes the head of the group out when it was placed; a group whose head stays is done for the round.
        """
        line = [self._rank(group) for group in self._groups.values()]
        heapq.heapify(line)
        while line:
            _, _, key = heapq.heappop(line)
            group = self._groups.get(key)
            head = group.head() if group is not None else None
            if group is None or head is None:
                continue
            yield group
            left = self._groups.get(key)
            if left is not None and head.key not in left.pods:
                heapq.heappush(line, self._rank(left))

    def _rank(self, group: Group) -> tuple[int, int, bytes]:
        return -group.priority, next(iter(group.arrivals.values())), group.key
