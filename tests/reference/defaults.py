"""Default topology spread: constraints for pods that bring none, with the selector kube-scheduler would deduce."""

from __future__ import annotations

import msgspec

from pykarpenter.api.meta import LabelSelector, LabelSelectorRequirement
from pykarpenter.api.pods import Pod, TopologySpreadConstraint
from pykarpenter.core.snapshot import ClusterSnapshot


def with_default_spread(pod: Pod, snapshot: ClusterSnapshot, defaults: tuple[TopologySpreadConstraint, ...]) -> Pod:
    if not defaults or pod.spec.topology_spread_constraints:
        return pod
    selector = deduced_selector(pod, snapshot)
    if selector is None:
        return pod
    constraints = [msgspec.structs.replace(c, label_selector=selector) for c in defaults]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, topology_spread_constraints=constraints))


def deduced_selector(pod: Pod, snapshot: ClusterSnapshot) -> LabelSelector | None:
    """Services' selectors, then the controller's; None when nothing selects the pod."""
    merged: dict[str, str] = {}
    for service in snapshot.selectors.services:
        wanted = service.spec.selector
        if service.namespace != pod.namespace or not wanted:
            continue
        if all(pod.metadata.labels.get(k) == v for k, v in wanted.items()):
            merged.update(wanted)
    expressions: list[LabelSelectorRequirement] = []
    owner = next((o for o in pod.metadata.owner_references if o.controller), None)
    if owner is not None:
        key = f"{pod.namespace}/{owner.name}"
        if (owner.api_version, owner.kind) == ("v1", "ReplicationController"):
            controller = snapshot.selectors.replication_controllers.get(key)
            merged.update(controller.spec.selector if controller is not None else {})
        elif owner.api_version == "apps/v1" and owner.kind in ("ReplicaSet", "StatefulSet"):
            source = snapshot.selectors.replica_sets if owner.kind == "ReplicaSet" else snapshot.selectors.stateful_sets
            workload = source.get(key)
            if workload is not None and workload.spec.selector is not None:
                expressions = [
                    LabelSelectorRequirement(key=k, operator="In", values=[v])
                    for k, v in sorted(workload.spec.selector.match_labels.items())
                ] + list(workload.spec.selector.match_expressions)
    if not merged and not expressions:
        return None
    return LabelSelector(match_labels=merged, match_expressions=expressions)
