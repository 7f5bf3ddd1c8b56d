"""Runs each kind's defaults and checks on create and update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykarpenter.sim.schema import kubernetes
from pykarpenter.sim.store import definitions, namespaces
from pykarpenter.sim.store.admission import cluster_kinds, pods, workloads
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.refusals import bad_request, invalid
from pykarpenter.sim.store.requests import WriteOptions
from pykarpenter.sim.store.resources import Resource
from pykarpenter.sim.store.scale import replica_errors

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store


class Admission:
    def __init__(self, store: Store, *, taint_new_nodes: bool) -> None:
        self._store = store
        self._pods = pods.PodAdmission(store)
        self._taint_new_nodes = taint_new_nodes

    def on_create(self, resource: Resource, obj: Json, options: WriteOptions) -> Json:
        """The object as it will be stored; raises Invalid, BadRequest or Forbidden."""
        if resource.custom is not None:
            return self._custom(resource, obj, None, options)
        obj = self._known(resource, obj, options)
        plural = resource.plural
        if plural == "pods":
            return self._pods.admit(resource, obj)
        if plural == "namespaces":
            return namespaces.admit(obj)
        if plural == "nodes" and self._taint_new_nodes:
            obj = cluster_kinds.not_ready(obj)
        if plural == "persistentvolumeclaims":
            classes = self._store.table("storage.k8s.io", "storageclasses").entries.values()
            obj = cluster_kinds.with_default_class(obj, [entry.obj for entry in classes])
        return self._kind_rules(resource, obj, None)

    def on_update(self, resource: Resource, obj: Json, old: Json, subresource: str, options: WriteOptions) -> Json:
        if resource.custom is not None:
            return self._custom(resource, obj, old, options)
        obj = self._known(resource, obj, options)
        if resource.plural == "pods":
            pods.check_update(resource, obj, old, subresource)
            return obj
        return self._kind_rules(resource, obj, old)

    def _kind_rules(self, resource: Resource, obj: Json, old: Json | None) -> Json:
        plural = resource.plural
        if plural in workloads.KINDS:
            return workloads.admit(resource, obj, old)
        if plural in cluster_kinds.KINDS:
            return cluster_kinds.admit(resource, obj, old)
        if plural == "customresourcedefinitions" and (old is None or obj.get("spec") is not old.get("spec")):
            return self._definition(resource, obj)
        return obj

    @staticmethod
    def _known(resource: Resource, obj: Json, options: WriteOptions) -> Json:
        """A built-in object whose types are right, without fields that its kind does not have."""
        problem = kubernetes.type_problem(resource.group, resource.version, resource.kind, obj)
        if problem:
            raise bad_request(_unreadable(resource, problem))
        # The walk is dear, and our own controllers write no unknown fields: only callers that say how to treat
        # them pay for it. A served cluster always says.
        if not options.field_validation:
            return obj
        schema = kubernetes.root_schema(resource.group, resource.version, resource.kind)
        unknown = kubernetes.unknown_fields(schema, obj) if schema is not None else []
        if not unknown:
            return obj
        _report_unknown(unknown, options, resource)
        return kubernetes.without_fields(obj, set(unknown))  # type: ignore[no-any-return]

    @staticmethod
    def _custom(resource: Resource, obj: Json, old: Json | None, options: WriteOptions) -> Json:
        assert resource.custom is not None
        if problem := kubernetes.metadata_problem(obj["metadata"]):
            raise bad_request(_unreadable(resource, problem))
        obj, unknown = resource.custom.shape(obj, old)
        if unknown:
            _report_unknown(unknown, options, resource)
        errors = resource.custom.errors(obj, old)
        if resource.scale is not None:
            errors += replica_errors(resource.scale, obj)
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


def _unreadable(resource: Resource, problem: str) -> str:
    return f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {problem}'


def _report_unknown(paths: list[str], options: WriteOptions, resource: Resource) -> None:
    messages = [f'unknown field "{path}"' for path in paths]
    if options.field_validation == "Strict":
        raise bad_request(_unreadable(resource, f"strict decoding error: {', '.join(messages)}"))
    if options.field_validation == "Warn" and options.warnings is not None:
        options.warnings.extend(messages)
