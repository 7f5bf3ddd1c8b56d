"""Pod admission: the defaults an API server fills in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.resources import Resource

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store


def admit(store: Store, resource: Resource, pod: Json) -> Json:
    return {**pod, "spec": pod.get("spec") or {}, "status": {"phase": "Pending"}}
