"""A store with the real CRDs, the KWOK provider and the NodePool controllers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pykarpenter.api import kinds
from pykarpenter.api.crds import crds
from pykarpenter.api.meta import Condition, find_condition
from pykarpenter.api.nodepool import NodePool
from pykarpenter.controllers.nodepool import nodepool_controllers
from pykarpenter.runtime.virtual_loop import run_virtual
from tests.machines.world import CLASS_REF, World

T = TypeVar("T")

__all__ = ["CLASS_REF", "PoolWorld", "in_world"]


class PoolWorld(World):
    async def serve(self) -> None:
        for crd in crds():
            await self.api.create(kinds.CRD, crd)
        self.controllers = nodepool_controllers

    async def pool(self, name: str = "p", *, labels: dict[str, str] | None = None, **fields: Any) -> NodePool:
        """Create a pool; fields of the template go to the template, others to the spec."""
        template: dict[str, Any] = {"nodeClassRef": dict(CLASS_REF), "requirements": []}
        for key in ("nodeClassRef", "requirements", "taints", "startupTaints", "expireAfter", "terminationGracePeriod"):
            if key in fields:
                template[key] = fields.pop(key)
        spec = {"template": {"metadata": {"labels": labels or {}}, "spec": template}, **fields}
        body = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
        return await self.api.create(kinds.NODE_POOL, body)

    async def seen(self, name: str = "p") -> NodePool:
        return await self.api.get(kinds.NODE_POOL, name)

    async def condition(self, condition_type: str, name: str = "p") -> Condition | None:
        return find_condition((await self.seen(name)).status.conditions, condition_type)


def in_world(story: Callable[[PoolWorld], Awaitable[T]]) -> T:
    """Run a story on virtual time with the operator started."""

    async def main() -> T:
        world = PoolWorld()
        await world.serve()
        await world.begin(kubelets=False)
        try:
            return await story(world)
        finally:
            await world.end()

    return run_virtual(main())
