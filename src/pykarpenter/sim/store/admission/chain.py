"""Runs each kind's defaults and checks on create and update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykarpenter.sim.store import definitions, namespaces
from pykarpenter.sim.store.admission import pods
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.refusals import bad_request, invalid
from pykarpenter.sim.store.requests import WriteOptions
from pykarpenter.sim.store.resources import Resource

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store


class Admission:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_create(self, resource: Resource, obj: Json, options: WriteOptions) -> Json:
        """The object as it will be stored; raises Invalid or Forbidden."""
        if resource.custom is not None:
            return self._custom(resource, obj, None, options)
        match resource.plural:
            case "pods":
                return pods.admit(self._store, resource, obj)
            case "namespaces":
                return namespaces.admit(obj)
            case "customresourcedefinitions":
                return self._definition(resource, obj)
        return obj

    def on_update(self, resource: Resource, obj: Json, old: Json, subresource: str, options: WriteOptions) -> Json:
        if resource.custom is not None:
            return self._custom(resource, obj, old, options)
        if resource.plural == "customresourcedefinitions" and obj.get("spec") is not old.get("spec"):
            return self._definition(resource, obj)
        return obj

    @staticmethod
    def _custom(resource: Resource, obj: Json, old: Json | None, options: WriteOptions) -> Json:
        assert resource.custom is not None
        obj, unknown = resource.custom.shape(obj, old)
        if unknown and options.field_validation == "Strict":
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise bad_request(f"strict decoding error: {listed}")
        if options.warnings is not None:
            options.warnings.extend(f'unknown field "{path}"' for path in unknown)
        errors = resource.custom.errors(obj, old)
        if errors:
            raise invalid(resource, obj["metadata"].get("name", ""), errors)
        return obj

    @staticmethod
    def _definition(resource: Resource, obj: Json) -> Json:
        obj = definitions.admit(obj)
        errors = definitions.errors(obj)
        if errors:
            raise invalid(resource, obj["metadata"].get("name", ""), errors)
        return obj
