"""Every write to a NodeClaim: patches bound to the version they were decided on, deletes bound to the object.

A stale version is a Conflict for the caller, who looks again; nothing is merged blindly. Each write answers the
claim as the server has it now, so that a pass goes on from facts and not from hopes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pykarpenter.api import labels
from pykarpenter.api.kinds import NODE_CLAIM
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.controllers.context import Context
from pykarpenter.core import conditions
from pykarpenter.core.conditions import Finding
from pykarpenter.core.lifecycle import termination_mode
from pykarpenter.kube.contract import DeleteOptions, Preconditions
from pykarpenter.kube.errors import NotFound
from pykarpenter.runtime.redaction import redact_text


class ClaimWriter:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def status(
        self,
        claim: NodeClaim,
        *findings: Finding,
        clear: Iterable[str] = (),
        fields: dict[str, Any] | None = None,
    ) -> NodeClaim:
        """Write conditions and other status fields in one patch; nothing is sent when nothing changes."""
        before = claim.status.conditions
        present = {condition.type for condition in before}
        gone = [name for name in clear if name in present]
        if not findings and not gone and not fields:
            return claim
        now = self._ctx.clock.now()
        # Errors of clouds are quoted in conditions, and some carry what was sent with the request (S14).
        shown = [replace(finding, message=redact_text(finding.message)) for finding in findings]
        after = conditions.NODE_CLAIM.apply(before, claim.metadata, now, *shown, clear=gone)
        if after == before and not fields:
            return claim
        body = {
            "metadata": {"resourceVersion": claim.metadata.resource_version},
            "status": {**(fields or {}), "conditions": conditions.to_wire(after)},
        }
        return await self._ctx.api.patch(NODE_CLAIM, claim.name, body, subresource="status")

    async def metadata(self, claim: NodeClaim, **fields: Any) -> NodeClaim:
        """Patch labels, annotations or finalizers; lists replace, maps merge, None removes a key of a map."""
        body = {"metadata": {"resourceVersion": claim.metadata.resource_version, **fields}}
        return await self._ctx.api.patch(NODE_CLAIM, claim.name, body)

    async def delete(self, claim: NodeClaim) -> bool:
        """Delete exactly this version of this object; False when it is gone already."""
        expected = Preconditions(uid=claim.uid, resource_version=claim.metadata.resource_version)
        try:
            await self._ctx.api.delete(NODE_CLAIM, claim.name, options=DeleteOptions(expected))
        except NotFound:
            return False
        return True

    async def give_up(self, claim: NodeClaim, reason: str) -> None:
        """Delete the claim and count why."""
        if await self.delete(claim):
            self.count_disrupted(claim, reason)

    def count_disrupted(self, claim: NodeClaim, reason: str) -> None:
        self._ctx.metrics.count(
            "karpenter_nodeclaims_disrupted_total",
            {
                "reason": reason,
                "nodepool": claim.pool_name,
                "capacity_type": claim.metadata.labels.get(labels.CAPACITY_TYPE, ""),
                "consolidation_policy": "",
                "termination_mode": termination_mode(claim),
            },
        )
