"""Launching: ask the provider for the claim's machine and record what came of it.

The provider finds a launch again by the claim's UID, so repeating the call after a crash, a lost answer or a lost
write returns the same machine. Nothing here remembers launches; only definite refusals are remembered, to spare the
provider a listing when the claim goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.cloud.errors import CreateError, InsufficientCapacity, NodeClassNotReady
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.identity import claim_reference, pod_reference
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.conditions import shorten
from pykarpenter.core.draining import is_terminal
from pykarpenter.core.lifecycle import Fact, Phase, merge_launch, step

_REFUSALS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Launch:
    """What came of one attempt: the claim as it is now (None when it was given up), and what to try again for."""

    claim: NodeClaim | None
    error: Exception | None = None


class Launcher:
    def __init__(self, ctx: Context, writer: ClaimWriter) -> None:
        self._ctx = ctx
        self._writer = writer
        self._refused: dict[str, None] = {}

    def was_refused(self, uid: str) -> bool:
        """Whether this process knows for certain that the claim never got a machine."""
        return uid in self._refused

    async def launch(self, claim: NodeClaim) -> Launch:
        try:
            launched = await self._ctx.provider.create(claim)
        except InsufficientCapacity as error:
            self._refuse(claim)
            self._tell_refusal(claim, str(error))
            await self._give_up(claim, Fact.CAPACITY_REFUSED)
            return Launch(None)
        except NodeClassNotReady as error:
            self._refuse(claim)
            self._publish(claim, "NodeClassNotReady", str(error))
            await self._give_up(claim, Fact.CLASS_NOT_READY)
            return Launch(None)
        except Exception as error:
            reason = error.reason if isinstance(error, CreateError) else ""
            failed = step(Phase.LAUNCHING, Fact.LAUNCH_FAILED)
            # The written claim goes on: whether its time is up is judged on this version, not on the one before.
            return Launch(await self._writer.status(claim, failed.finding(str(error), reason)), error)
        return Launch(await self._record(claim, launched))

    async def _record(self, claim: NodeClaim, launched: NodeClaim) -> NodeClaim:
        merged = merge_launch(claim, launched)
        metadata: dict[str, Any] = {}
        if merged.labels != claim.metadata.labels:
            metadata["labels"] = merged.labels
        if merged.annotations != claim.metadata.annotations:
            metadata["annotations"] = merged.annotations
        if metadata:
            claim = await self._writer.metadata(claim, **metadata)
        status = launched.status
        fields: dict[str, Any] = {
            "providerID": status.provider_id,
            "capacity": status.capacity,
            "allocatable": status.allocatable,
        }
        if status.image_id:
            fields["imageID"] = status.image_id
        done = step(Phase.LAUNCHING, Fact.INSTANCE_LAUNCHED)
        return await self._writer.status(claim, done.finding(), fields=fields)

    async def _give_up(self, claim: NodeClaim, fact: Fact) -> None:
        await self._writer.give_up(claim, step(Phase.LAUNCHING, fact).give_up)

    def _refuse(self, claim: NodeClaim) -> None:
        self._refused[claim.uid] = None
        while len(self._refused) > _REFUSALS_KEPT:
            del self._refused[next(iter(self._refused))]

    def _tell_refusal(self, claim: NodeClaim, message: str) -> None:
        self._publish(claim, "InsufficientCapacityError", f"NodeClaim {claim.name} event: {message}")
        pods = self._ctx.caches.of(kinds.POD)
        for key in self._ctx.state.expected_pods(claim.name):
            pod = pods.get(key)
            if pod is None or pod.spec.node_name or pod.is_deleting or is_terminal(pod):
                continue
            text = f"The NodeClaim {claim.name} planned for this pod could not be launched: {message}"
            self._ctx.recorder.publish(
                pod_reference(pod), "Warning", "InsufficientCapacityError", shorten(text), dedupe=(pod.uid,)
            )

    def _publish(self, claim: NodeClaim, reason: str, message: str) -> None:
        self._ctx.recorder.publish(claim_reference(claim), "Warning", reason, shorten(message), dedupe=(claim.uid,))
