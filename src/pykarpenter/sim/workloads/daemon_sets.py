"""DaemonSets: one pod on every node that matches, worked on node by node so that a thousand nodes stay cheap."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from pykarpenter.api import kinds
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import NodeSelectorTerm, Pod, PodSpec
from pykarpenter.core.requirements import from_expressions, from_labels
from pykarpenter.core.taints import tolerates
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import Json
from pykarpenter.sim.views import DAEMON_SET, RawObject, controller_uid
from pykarpenter.sim.workloads.deployments import template_hash
from pykarpenter.sim.workloads.owned_pods import OwnedPods, is_finished, is_ready
from pykarpenter.sim.workloads.part import SETTLE_S, Part, World
from pykarpenter.sim.workloads.revisions import REVISION_LABEL, Revisions

# What the DaemonSet controller lets its pods tolerate.
TOLERATIONS: list[Json] = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
]


class DaemonSets(Part):
    """Keys are `namespace/name|node`, and `namespace/name|` for the status of a set."""

    def __init__(self, world: World, pods: OwnedPods) -> None:
        super().__init__("daemonset", world)
        self._pods = pods
        self._revisions = Revisions(self.api, DAEMON_SET)
        self._sets = self.views.of(DAEMON_SET)
        self._sets.add_index("uid", lambda item: (item.uid,))
        self._nodes = self.views.of(kinds.NODE)
        self.views.of(kinds.POD).add_index("daemon", _daemon_slot)
        self._specs: dict[str, tuple[str, PodSpec]] = {}
        self.views.on_change(DAEMON_SET, self._set_changed)
        self.views.on_change(kinds.NODE, self._node_changed)
        self.views.on_change(kinds.POD, self._pod_changed)

    def _set_changed(self, change: Change[RawObject]) -> None:
        item = change.new
        if item is None or (change.old is not None and change.old.spec == item.spec):
            return
        for node in self._nodes.keys():  # noqa: SIM118 - sorted
            self.queue.enqueue(f"{item.key}|{node}")
        self.queue.enqueue_after(f"{item.key}|", SETTLE_S)

    def _node_changed(self, change: Change[Node]) -> None:
        node = change.new
        if node is None:
            self._each_set("")
            return
        old = change.old
        if old is None or old.metadata.labels != node.metadata.labels or old.spec.taints != node.spec.taints:
            self._each_set(node.name)

    def _each_set(self, node_name: str) -> None:
        for item in self._sets.values():
            if node_name:
                self.queue.enqueue(f"{item.key}|{node_name}")
            self.queue.enqueue_after(f"{item.key}|", SETTLE_S)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        for owner in self._sets.index("uid", controller_uid(pod)):
            if change.new is None or is_finished(pod):
                self.queue.enqueue(f"{owner.key}|{node_of(pod)}")
            self.queue.enqueue_after(f"{owner.key}|", SETTLE_S)

    async def reconcile(self, key: str) -> float | None:
        set_key, _, node_name = key.partition("|")
        owner = self._sets.get(set_key)
        if owner is None or owner.is_deleting:
            return None
        if not node_name:
            await self._revisions.keep(owner)
            await self._replace_outdated(owner)
            await self._report(owner)
            return None
        await self._reconcile_node(owner, node_name)
        return None

    async def _reconcile_node(self, owner: RawObject, node_name: str) -> None:
        node = self._nodes.get(node_name)
        if node is None or node.is_deleting:
            return
        pods = self.views.of(kinds.POD).index("daemon", f"{owner.uid}/{node_name}")
        should_run, may_stay = self._wants(owner, node)
        for pod in pods:
            if not self._pods.is_leaving(pod) and (is_finished(pod) or not may_stay):
                await self._pods.delete(pod)
        name = f"{owner.name}-{template_hash({'node': node_name, 'uid': owner.uid})[:5]}"
        exists = pods or self._pods.has_unseen(owner.uid, f"{owner.namespace}/{name}")
        if should_run and not exists:
            await self._create(owner, node_name, name)

    def _wants(self, owner: RawObject, node: Node) -> tuple[bool, bool]:
        """Whether a pod should be started on the node, and whether one that runs there may stay."""
        spec = self._spec(owner)
        if not node_matches(spec, node):
            return False, False
        hard = [t for t in node.spec.taints if t.effect in ("NoSchedule", "NoExecute")]
        open_taints = [t for t in hard if not any(tolerates(toleration, t) for toleration in spec.tolerations)]
        return not open_taints, not any(t.effect == "NoExecute" for t in open_taints)

    def _spec(self, owner: RawObject) -> PodSpec:
        revision = template_hash(owner.spec["template"])
        cached = self._specs.get(owner.uid)
        if cached is None or cached[0] != revision:
            raw = owner.spec["template"]["spec"]
            tolerations = [*(raw.get("tolerations") or []), *TOLERATIONS]
            cached = (revision, msgspec.convert({**raw, "tolerations": tolerations}, PodSpec))
            self._specs[owner.uid] = cached
        return cached[1]

    async def _create(self, owner: RawObject, node_name: str, name: str) -> None:
        spec = owner.spec["template"]["spec"]
        changes = {
            "metadata": {"name": name, "labels": {REVISION_LABEL: template_hash(owner.spec["template"])}},
            "spec": {
                "affinity": pinned(spec.get("affinity"), node_name),
                "tolerations": [*(spec.get("tolerations") or []), *TOLERATIONS],
            },
        }
        await self._pods.create(DAEMON_SET, owner, owner.spec["template"], changes)

    async def _replace_outdated(self, owner: RawObject) -> None:
        """One pod of an older template at a time, once all others are ready."""
        if (owner.spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            return
        current = template_hash(owner.spec["template"])
        pods = self._pods.active(owner.uid)
        outdated = [pod for pod in pods if pod.metadata.labels.get(REVISION_LABEL) != current]
        unready = [pod for pod in outdated if not is_ready(pod)]
        if outdated and (unready or all(is_ready(pod) for pod in pods)):
            await self._pods.delete((unready or outdated)[0])

    async def _report(self, owner: RawObject) -> None:
        pods = self._pods.active(owner.uid)
        wanted = {node.name for node in self._nodes.values() if self._wants(owner, node)[0]}
        placed = {pod.spec.node_name for pod in pods if pod.spec.node_name}
        ready = sum(is_ready(pod) for pod in pods)
        current = template_hash(owner.spec["template"])
        status = {
            "observedGeneration": owner.metadata.generation,
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len(placed & wanted),
            "numberMisscheduled": len(placed - wanted),
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": max(0, len(wanted) - ready),
            "updatedNumberScheduled": sum(pod.metadata.labels.get(REVISION_LABEL) == current for pod in pods),
        }
        await self.write_status(DAEMON_SET, self._sets.get(owner.key) or owner, status)


def node_of(pod: Pod) -> str:
    """The node a daemon pod is meant for, bound or not."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    for term in affinity.required.node_selector_terms if affinity and affinity.required else []:
        for field in term.match_fields:
            if field.key == "metadata.name" and field.values:
                return field.values[0]
    return ""


def _daemon_slot(pod: Pod) -> tuple[str, ...]:
    uid = controller_uid(pod)
    return (f"{uid}/{node_of(pod)}",) if uid else ()


def pinned(affinity: Json | None, node_name: str) -> Json:
    """The template's affinity with every required term bound to one node."""
    result: dict[str, Any] = copy.deepcopy(affinity or {})
    node_affinity = result.setdefault("nodeAffinity", {})
    required = node_affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [{**term, "matchFields": [field]} for term in terms]
    return result


def node_matches(spec: PodSpec, node: Node) -> bool:
    """Node selector and required node affinity against a node's labels and name."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(_term_matches(term, node) for term in affinity.required.node_selector_terms)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    for field in term.match_fields:
        if (node.name in field.values) != (field.operator == "In"):
            return False
    try:
        wanted = from_expressions(term.match_expressions)
    except ValueError:
        return False
    return from_labels(node.metadata.labels).compatible(wanted)
