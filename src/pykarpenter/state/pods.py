"""Pods as the cluster state keeps them: by node, waiting for one, and by the DaemonSet that made them.

Terminal pods use nothing and are forgotten, but for those that a StatefulSet is about to make anew. A pod bound to a
node that has not been seen stays remembered under that node's name, so that the node is never taken for free when it
appears.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.draining import is_returning, is_terminal

_NO_PODS: Mapping[str, Pod] = {}


@dataclass(frozen=True, slots=True)
class PodChange:
    """What a change of a pod means for machines: the nodes whose pods changed, and whether room changed."""

    nodes: tuple[str, ...] = ()
    # A pod was bound or a bound one left: consolidation may find something new.
    moved: bool = False


_NOTHING = PodChange()


def daemon_set_uid(pod: Pod) -> str:
    """The UID of the DaemonSet that owns the pod; empty for other pods."""
    for owner in pod.metadata.owner_references:
        if owner.kind == "DaemonSet" and owner.api_version == "apps/v1":
            return owner.uid
    return ""


class PodIndex:
    """Live pods and where they are."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._by_node: dict[str, dict[str, Pod]] = {}
        # Pods that ended and come back, by the node they were on.
        self._returning: dict[str, dict[str, Pod]] = {}
        self._left_from: dict[str, str] = {}
        self._unbound: dict[str, Pod] = {}
        self._by_daemon_set: dict[str, dict[str, Pod]] = {}
        self._newest: dict[str, Pod] | None = {}
        # Changes whenever the set of unbound pods, or one of them, does.
        self.unbound_revision = 0

    def get(self, key: str) -> Pod | None:
        return self._pods.get(key)

    def on_node(self, node_name: str) -> Mapping[str, Pod]:
        return self._by_node.get(node_name, _NO_PODS)

    def returning_from(self, node_name: str) -> Mapping[str, Pod]:
        """Pods that ended on the node and that their StatefulSet is about to make anew."""
        return self._returning.get(node_name, _NO_PODS)

    @property
    def unbound(self) -> Mapping[str, Pod]:
        return self._unbound

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, pod: Pod) -> PodChange:
        """Take in a pod as it is now."""
        if is_terminal(pod):
            return self._ended(pod)
        key = pod.key
        returned = self._forget_returning(key)
        before = self._pods.get(key)
        if before is pod:
            return _NOTHING
        if before is not None:
            self._unlink(key, before)
        self._pods[key] = pod
        self._link(key, pod)
        was_on = before.spec.node_name if before is not None else ""
        nodes = tuple(dict.fromkeys(name for name in (was_on, pod.spec.node_name, *returned) if name))
        return PodChange(nodes, moved=was_on != pod.spec.node_name)

    def drop(self, key: str) -> PodChange:
        returned = self._forget_returning(key)
        pod = self._pods.pop(key, None)
        if pod is None:
            return PodChange(returned, moved=True) if returned else _NOTHING
        self._unlink(key, pod)
        node_name = pod.spec.node_name
        return PodChange((node_name,), moved=True) if node_name else _NOTHING

    def _ended(self, pod: Pod) -> PodChange:
        change = self.drop(pod.key)
        node_name = pod.spec.node_name
        if not node_name or not is_returning(pod):
            return change
        self._returning.setdefault(node_name, {})[pod.key] = pod
        self._left_from[pod.key] = node_name
        return PodChange((node_name,), moved=change.moved)

    def _forget_returning(self, key: str) -> tuple[str, ...]:
        """The node that the pod was to come back from."""
        node_name = self._left_from.pop(key, "")
        if not node_name:
            return ()
        _discard(self._returning, node_name, key)
        return (node_name,)

    def newest_daemon_pods(self) -> Mapping[str, Pod]:
        """The newest live pod of each DaemonSet, by the DaemonSet's UID; the same object until one changes."""
        if self._newest is None:
            self._newest = {}
            for uid in sorted(self._by_daemon_set):
                live = [pod for pod in self._by_daemon_set[uid].values() if not pod.is_deleting]
                if live:
                    self._newest[uid] = max(live, key=_age_order)
        return self._newest

    def _link(self, key: str, pod: Pod) -> None:
        if pod.spec.node_name:
            self._by_node.setdefault(pod.spec.node_name, {})[key] = pod
        else:
            self._unbound[key] = pod
            self.unbound_revision += 1
        owner = daemon_set_uid(pod)
        if owner:
            self._by_daemon_set.setdefault(owner, {})[key] = pod
            self._newest = None

    def _unlink(self, key: str, pod: Pod) -> None:
        node_name = pod.spec.node_name
        if node_name:
            _discard(self._by_node, node_name, key)
        else:
            self._unbound.pop(key, None)
            self.unbound_revision += 1
        owner = daemon_set_uid(pod)
        if owner:
            _discard(self._by_daemon_set, owner, key)
            self._newest = None


def _age_order(pod: Pod) -> tuple[float, str]:
    return (parse_optional_timestamp(pod.metadata.creation_timestamp) or 0.0, pod.key)


def _discard(index: dict[str, dict[str, Pod]], name: str, key: str) -> None:
    members = index[name]
    members.pop(key, None)
    if not members:
        del index[name]
