"""Runs each kind's defaults and checks on create and update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykarpenter.sim.store import namespaces
from pykarpenter.sim.store.admission import pods
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.requests import WriteOptions
from pykarpenter.sim.store.resources import Resource

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store


class Admission:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_create(self, resource: Resource, obj: Json, options: WriteOptions) -> Json:
        """The object as it will be stored; raises Invalid or Forbidden."""
        if resource.plural == "pods":
            return pods.admit(self._store, resource, obj)
        if resource.plural == "namespaces":
            return namespaces.admit(obj)
        return obj

    def on_update(self, resource: Resource, obj: Json, old: Json, subresource: str, options: WriteOptions) -> Json:
        return obj
