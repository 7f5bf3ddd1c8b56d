"""The binding subresource: the scheduler's word that a pod goes to a node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pykarpenter.sim.store.conditions import with_condition
from pykarpenter.sim.store.entries import Entry, with_metadata
from pykarpenter.sim.store.refusals import conflict

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store


def bind(store: Store, name: str, namespace: str, node_name: str, uid: str = "") -> Entry:
    """Places a pod; raises Conflict when it is placed already, gated or being deleted."""
    pods = store.resource("", "pods")
    pod = store.get(pods, name, namespace)
    meta, spec = pod.metadata, pod.obj["spec"]
    binding = replace(pods, plural="pods/binding")
    if uid and uid != meta["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        raise conflict(pods, name, why)
    if "deletionTimestamp" in meta:
        raise conflict(binding, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict(binding, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict(binding, name, f"pod {name} has non-empty .spec.schedulingGates")
    status = {key: value for key, value in (pod.obj.get("status") or {}).items() if key != "nominatedNodeName"}
    placed = {**pod.obj, "spec": {**spec, "nodeName": node_name}, "status": status}
    placed = with_condition(placed, {"type": "PodScheduled", "status": "True"}, store.timestamp())
    if meta.get("generation"):
        placed = with_metadata(placed, generation=meta["generation"] + 1)
    return store.store_as_is(pods, placed, pod)
