"""Hands a machine over to the reboot controller: the bound of its drain, then the conditions that commit it."""

from __future__ import annotations

from pykarpenter.api import kinds, labels
from pykarpenter.api.duration import format_duration
from pykarpenter.api.meta import condition_status
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.disruption.live import LiveFacts
from pykarpenter.controllers.disruption.reports import Reports
from pykarpenter.controllers.nodeclaim.writes import ClaimWriter
from pykarpenter.core.conditions import Finding, true
from pykarpenter.core.disruption.commands import Command, Reason
from pykarpenter.core.lifecycle import DISRUPTION_REASON, REBOOTING
from pykarpenter.core.repair import REBOOT_COMMITS, commits_with
from pykarpenter.kube.errors import Conflict, NotFound
from pykarpenter.runtime.logs import get_logger


class RebootHandoff:
    def __init__(self, ctx: Context, live: LiveFacts, reports: Reports) -> None:
        self._ctx = ctx
        self._live = live
        self._reports = reports
        self._writer = ClaimWriter(ctx)
        self._log = get_logger(controller="disruption")

    async def commit(self, command: Command) -> bool:
        """Whether the reboot is committed; a claim that is gone, going or rebooting is passed over."""
        target, order = command.targets[0], command.reboot
        if order is None:
            return False
        claim = await self._live.claim(target.claim)
        if claim is None or claim.uid != target.claim_uid or claim.is_deleting:
            return False
        if condition_status(claim.status.conditions, REBOOTING) == "True":
            return False
        grace = None if order.grace_s is None else format_duration(order.grace_s)
        annotations = {
            labels.REBOOT_TERMINATION_GRACE_PERIOD: grace,
            # On the claim, so that a restart does not forget how often a machine was rebooted.
            REBOOT_COMMITS: commits_with(claim, self._ctx.clock.now()),
        }
        requested = Finding(REBOOTING, "True", "RebootRequested", f"rebooting for {order.condition}/{order.reason}")
        try:
            facts = {"uid": claim.uid, "resourceVersion": claim.metadata.resource_version}
            self._reports.audit("commit reboot", command, target, facts)
            claim = await self._writer.metadata(claim, annotations=annotations)
            reason = true(DISRUPTION_REASON, Reason.UNHEALTHY, Reason.UNHEALTHY)
            claim = await self._writer.status(claim, reason, requested)
        except (Conflict, NotFound) as error:
            self._log.info("reboot not committed, the claim changed", NodeClaim=target.claim, error=error)
            return False
        # Known at once, so that the next pass does not choose the machine again.
        self._ctx.state.observe(kinds.NODE_CLAIM, None, claim)
        self._reports.started(command, ())
        self._reports.disrupted(command, target)
        return True
