"""`nodepool.hash`: keeps the hash of the template on the pool, by which its nodes know whether they drifted."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.duration import InvalidDuration
from pykarpenter.api.nodepool import NodePool
from pykarpenter.controllers.nodepool.pools import PoolController
from pykarpenter.core.pool_hash import hash_writes
from pykarpenter.kube.errors import NotFound
from pykarpenter.runtime.controller import Result


class PoolHash(PoolController):
    name = "nodepool.hash"

    async def reconcile(self, pool: NodePool) -> Result | None:
        try:
            writes = hash_writes(pool, self.pools.claims_of(pool))
        except InvalidDuration:
            # Validation tells it; until the template is corrected nothing is launched from it.
            return None
        # Claims first: a pool with the new version and claims with the old hash would look drifted for ever.
        for claim, wanted in writes.claims:
            body = {"metadata": {"resourceVersion": claim.metadata.resource_version, "annotations": wanted}}
            try:
                await self.ctx.api.patch(kinds.NODE_CLAIM, claim.name, body)
            except NotFound:
                continue
        if writes.pool is not None:
            body = {"metadata": {"resourceVersion": pool.metadata.resource_version, "annotations": writes.pool}}
            # Bound to the version that was hashed: a pool that changed meanwhile is hashed anew.
            await self.ctx.api.patch(kinds.NODE_POOL, pool.name, body)
        return None
