"""Default topology spread: constraints for pods that bring none, with the selector kube-scheduler would deduce.

The selector merges the Services that select the pod and its controlling owner's own selector; a pod that nothing
selects gets no defaults.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pykarpenter.api.meta import LabelSelector, LabelSelectorRequirement, OwnerReference
from pykarpenter.api.pods import Pod, TopologySpreadConstraint
from pykarpenter.api.workloads import ReplicaSet, StatefulSet
from pykarpenter.core.snapshot import SelectorObjects


class DefaultSpread:
    """Answers the default constraints of each pod; equal questions are answered once."""

    def __init__(self, constraints: Sequence[TopologySpreadConstraint], objects: SelectorObjects) -> None:
        self._constraints = tuple(constraints)
        self._objects = objects
        self._known: dict[tuple[object, ...], tuple[TopologySpreadConstraint, ...]] = {}

    def __call__(self, pod: Pod) -> tuple[TopologySpreadConstraint, ...]:
        """Constraints for a pod without any of its own; empty when nothing selects it."""
        owner = _controller(pod)
        meta = pod.metadata
        question = (meta.namespace, owner.uid if owner else "", tuple(sorted(meta.labels.items())))
        found = self._known.get(question)
        if found is None:
            selector = self._selector(pod, owner)
            found = self._known[question] = (
                ()
                if selector is None
                else tuple(msgspec.structs.replace(c, label_selector=selector) for c in self._constraints)
            )
        return found

    def _selector(self, pod: Pod, owner: OwnerReference | None) -> LabelSelector | None:
        merged: dict[str, str] = {}
        for service in self._objects.services:
            wanted = service.spec.selector
            if service.namespace != pod.namespace or not wanted:
                continue
            if all(pod.metadata.labels.get(key) == value for key, value in wanted.items()):
                merged.update(wanted)
        expressions: list[LabelSelectorRequirement] = []
        key = f"{pod.namespace}/{owner.name}" if owner is not None else ""
        if owner is not None and owner.kind == "ReplicationController" and owner.api_version == "v1":
            controller = self._objects.replication_controllers.get(key)
            merged.update(controller.spec.selector if controller is not None else {})
        elif owner is not None and owner.api_version == "apps/v1":
            expressions = self._workload(owner.kind, key)
        if not merged and not expressions:
            return None
        return LabelSelector(match_labels=merged, match_expressions=expressions)

    def _workload(self, kind: str, key: str) -> list[LabelSelectorRequirement]:
        workload: ReplicaSet | StatefulSet | None = None
        if kind == "ReplicaSet":
            workload = self._objects.replica_sets.get(key)
        elif kind == "StatefulSet":
            workload = self._objects.stateful_sets.get(key)
        selector = workload.spec.selector if workload is not None else None
        if selector is None:
            return []
        labelled = [
            LabelSelectorRequirement(key=name, operator="In", values=[value])
            for name, value in sorted(selector.match_labels.items())
        ]
        return labelled + list(selector.match_expressions)


def _controller(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)
