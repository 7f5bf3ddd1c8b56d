"""Which volumes a leaving Node still holds that somebody waits for.

Attachments without a PersistentVolume name, and those of pods that stay on the Node to its end, hold up nothing. A
volume whose claim cannot be found is waited for: unknown is not free.
"""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.identity import BY_NODE_NAME
from pykarpenter.core.draining import is_waiting


class Attachments:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._attachments = ctx.caches.of(kinds.VOLUME_ATTACHMENT)
        self._claims = ctx.caches.of(kinds.PVC)
        self._pods = ctx.caches.of(kinds.POD)

    def awaited(self, node: Node) -> list[str]:
        """Names of the attachments that must go before the instance does, sorted."""
        staying = self._volumes_of_staying_pods(node)
        return sorted(
            item.name
            for item in self._attachments.index(BY_NODE_NAME, node.name)
            if item.spec.source.persistent_volume_name and item.spec.source.persistent_volume_name not in staying
        )

    def _volumes_of_staying_pods(self, node: Node) -> set[str]:
        now = self._ctx.clock.now()
        volumes: set[str] = set()
        for pod in self._pods.index(BY_NODE_NAME, node.name):
            if not is_waiting(pod, now):
                volumes.update(self._volumes_of(pod))
        return volumes

    def _volumes_of(self, pod: Pod) -> list[str]:
        names = [v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim]
        names += [f"{pod.name}-{v.name}" for v in pod.spec.volumes if v.ephemeral]
        found = (self._claims.get(f"{pod.namespace}/{name}") for name in names)
        return [claim.spec.volume_name for claim in found if claim is not None and claim.spec.volume_name]
