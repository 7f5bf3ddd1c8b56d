"""What every workload controller of the embedded cluster is made of: the API, the shared views and one queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from pykarpenter.api.kinds import Kind
from pykarpenter.api.meta import Object
from pykarpenter.kube.contract import Json, KubeApi
from pykarpenter.kube.errors import ApiError, Conflict, NotFound
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.sim.views import RawObject, Views

# How long a controller lets status changes of its pods gather before it counts them again.
SETTLE_S = 0.2


@dataclass(frozen=True, slots=True)
class World:
    """The door and the picture that all controllers share."""

    api: KubeApi
    views: Views
    clock: Clock


class Part(ABC):
    """A controller that works on one key at a time; conflicts and vanished objects are tried again or dropped."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.api = world.api
        self.views = world.views
        self.clock = world.clock
        self.queue: Controller[str] = Controller(name, self._reconcile, clock=world.clock, workers=1)

    async def run(self) -> None:
        await self.queue.run()

    @abstractmethod
    async def reconcile(self, key: str) -> float | None:
        """Bring one object up to date; answers seconds after which to look again, or None."""

    async def _reconcile(self, key: str) -> Result | None:
        try:
            delay = await self.reconcile(key)
        except Conflict:
            return Result(requeue_after_s=SETTLE_S)
        except NotFound:
            return None
        return Result(requeue_after_s=delay) if delay is not None else None

    async def write_status(self, kind: Kind[RawObject], obj: RawObject, status: Json) -> None:
        """Patch the fields of the status that changed; nothing is written when none did."""
        changed = {name: value for name, value in status.items() if obj.status.get(name) != value}
        if changed:
            await self.api.patch(kind, obj.name, {"status": changed}, obj.namespace, subresource="status")


def owner_reference(kind: Kind[Any], owner: Object) -> Json:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def refused(error: ApiError) -> bool:
    """Whether the API server said no to this object, so that trying again at once is useless."""
    return error.code in (400, 403, 422)
