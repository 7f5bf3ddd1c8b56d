"""Turns planned claims into NodeClaims: capacity is promised first, and no repetition creates a second one.

The name derives from the plan, so a retry after a lost answer meets its own object and that is success. A create
whose outcome stays unknown keeps its promise and its pods until `Reconciliation` has found out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.pods import Pod
from pykarpenter.api.quantity import format_quantities
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.provisioning.claim_body import claim_body
from pykarpenter.core.plans import PlannedClaim, claim_name
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.kube.errors import AlreadyExists, ApiError, Fenced, NotFound, ServerFault, TooManyRequests
from pykarpenter.runtime.logs import get_logger
from pykarpenter.state.ledger import Promise

# Creates that are in flight at once; the client's own rate limit paces them further.
PARALLEL = 20
_ATTEMPTS = 5
_FIRST_RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one planned claim: the claim, or why there is none; neither while the outcome is unknown."""

    planned: PlannedClaim
    name: str
    claim: NodeClaim | None = None
    refusal: Refusal | None = None


class ClaimCreator:
    """Creates NodeClaims for plans of provisioning, of static pools and of disruption."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._log = get_logger(controller="provisioner")

    async def create_all(
        self, plan_id: str, planned: Sequence[PlannedClaim], pods: dict[str, Pod], reason: str = "provisioned"
    ) -> list[Outcome]:
        """One outcome per planned claim, in order. All promises are made before the first create is sent."""
        reserved = [self._reserve(plan_id, index, item, pods) for index, item in enumerate(planned)]
        free = asyncio.Semaphore(PARALLEL)

        async def create(outcome: Outcome, pool: NodePool | None) -> Outcome:
            if outcome.refusal is not None or pool is None:
                return outcome
            async with free:
                return await self._create(outcome, pool, plan_id, reason)

        return list(await asyncio.gather(*(create(outcome, pool) for outcome, pool in reserved)))

    def _reserve(
        self, plan_id: str, index: int, planned: PlannedClaim, pods: dict[str, Pod]
    ) -> tuple[Outcome, NodePool | None]:
        name = claim_name(planned.node_pool, plan_id, index)
        pool = self._ctx.state.node_pool(planned.node_pool)
        if pool is None or pool.is_deleting:
            refusal = Refusal(Why.NO_NODE_POOLS, f'nodepool "{planned.node_pool}" is gone or being deleted')
            return Outcome(planned, name, refusal=refusal), None
        promise = Promise(name, planned.node_pool, planned.max_capacity)
        waiting = [pods[key] for key in planned.pods if key in pods]
        return Outcome(planned, name, refusal=self._ctx.state.reserve(promise, waiting)), pool

    async def _create(self, outcome: Outcome, pool: NodePool, plan_id: str, reason: str) -> Outcome:
        name, planned = outcome.name, outcome.planned
        try:
            claim = await self._create_once(name, claim_body(planned, pool, name, plan_id))
        except ApiError as error:
            # The server said no: nothing exists under this name.
            self._ctx.state.abandon(name)
            self._log.error("creating nodeclaim failed", NodeClaim=name, NodePool=pool.name, plan=plan_id, error=error)
            refusal = Refusal(Why.CREATE_REFUSED, f"creating nodeclaim {name}: {error.message}")
            return Outcome(planned, name, refusal=refusal)
        if claim is None:
            self._log.error("outcome of creating nodeclaim is unknown", NodeClaim=name, plan=plan_id)
            return outcome
        self._ctx.state.insert_claim(claim)
        relaxed = claim.metadata.annotations.get(labels.MIN_VALUES_RELAXED, "false")
        self._ctx.metrics.count(
            "karpenter_nodeclaims_created_total",
            {"reason": reason, "nodepool": pool.name, "min_values_relaxed": relaxed},
        )
        self._log.info(
            "created nodeclaim",
            NodePool=pool.name,
            NodeClaim=name,
            requests=format_quantities(planned.requests),
            plan=plan_id,
            **{"instance-types": shortened(planned.instance_types)},
        )
        return Outcome(planned, name, claim)

    async def _create_once(self, name: str, body: dict[str, object]) -> NodeClaim | None:
        """The claim; None when nobody can say whether it exists. Raises an ApiError that is a certain no."""
        delay, in_doubt = _FIRST_RETRY_S, False
        for _ in range(_ATTEMPTS):
            self._ctx.state.ledger.sent(name, self._ctx.clock.now())
            wait = delay
            try:
                return await self._ctx.api.create(kinds.NODE_CLAIM, body)
            except AlreadyExists:
                return await self._own(name)
            except TooManyRequests as error:
                wait = max(delay, error.retry_after_s or 0.0)
            except (ServerFault, OSError, TimeoutError):
                in_doubt = True
            except ApiError:
                if in_doubt:
                    # This attempt did nothing, but an earlier one may have.
                    return None
                raise
            await asyncio.sleep(wait)
            delay *= 2
        return None

    async def _own(self, name: str) -> NodeClaim | None:
        """The object that an earlier attempt of ours made."""
        try:
            return await self._ctx.api.get(kinds.NODE_CLAIM, name)
        except (NotFound, Fenced):
            raise
        except (ApiError, OSError, TimeoutError):
            return None


def shortened(names: Sequence[str], shown: int = 5) -> str:
    """`a, b, c and 7 other(s)`."""
    if len(names) <= shown:
        return ", ".join(names)
    return f"{', '.join(names[:shown])} and {len(names) - shown} other(s)"
