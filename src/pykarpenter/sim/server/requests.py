"""A request's path, query and body, read into what the store takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from pykarpenter.kube.contract import PatchType
from pykarpenter.kube.errors import BadRequest
from pykarpenter.sim.schema.field_errors import invalid_value, not_supported
from pykarpenter.sim.server import protobuf
from pykarpenter.sim.store import DeleteRequest, ListRequest, Resource, Store, WatchRequest, WriteOptions
from pykarpenter.sim.store.refusals import invalid_options, no_such_resource, unsupported_patch

Json = dict[str, Any]
# Subresources of a namespace itself; anything else after its name is a kind inside it.
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_DEFAULT_WATCH_S = 3600


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a kind, maybe a namespace, an object and a subresource."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def read_target(store: Store, group: str, version: str, rest: str) -> Target:
    """The target of a path below a group version; raises NotFound."""
    parts = [part for part in rest.split("/") if part]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces" and parts[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, parts = parts[1], parts[2:]
    if not 1 <= len(parts) <= 3:
        raise no_such_resource()
    resource = store.resource(group, parts[0])
    if resource.version != version:
        raise no_such_resource()
    name, subresource = ([*parts[1:], "", ""])[:2]
    return Target(resource, namespace, name, subresource)


async def read_body(request: web.Request) -> Any:
    """The body as JSON values, sent as JSON, YAML or protobuf; raises BadRequest."""
    raw = await request.read()
    if not raw:
        return None
    if "protobuf" in request.content_type:
        return protobuf.decode(raw)
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        if "yaml" not in request.content_type:
            raise BadRequest(f"the body of the request is not JSON: {error}") from error
    import yaml

    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise BadRequest(f"the body of the request is neither JSON nor YAML: {error}") from error


def _is_true(text: str) -> bool:
    return text.lower() in ("true", "1")


def wants_watch(request: web.Request) -> bool:
    return _is_true(request.query.get("watch", ""))


def wants_bookmarks(request: web.Request) -> bool:
    return _is_true(request.query.get("allowWatchBookmarks", ""))


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError as error:
        raise BadRequest(f"{name}: {text!r} is not a number") from error


def watch_seconds(request: web.Request) -> int:
    return _number(request, "timeoutSeconds", _DEFAULT_WATCH_S) or _DEFAULT_WATCH_S


def list_request(request: web.Request, target: Target) -> ListRequest:
    query = request.query
    return ListRequest(
        target.namespace,
        query.get("labelSelector", ""),
        _fields(query.get("fieldSelector", ""), target),
        _number(request, "limit", 0),
        query.get("continue", ""),
        query.get("resourceVersion", ""),
        query.get("resourceVersionMatch", ""),
    )


def _fields(selector: str, target: Target) -> str:
    """A list or watch of one name is a field selector."""
    one = f"metadata.name={target.name}" if target.name else ""
    return ",".join(part for part in (selector, one) if part)


def watch_request(request: web.Request, target: Target) -> WatchRequest:
    query = request.query
    return WatchRequest(
        target.namespace,
        query.get("labelSelector", ""),
        _fields(query.get("fieldSelector", ""), target),
        query.get("resourceVersion", ""),
        _is_true(query.get("sendInitialEvents", "")),
    )


def write_options(request: web.Request, warnings: list[str]) -> WriteOptions:
    """How to write; without a manager in the query it is the program in the User-Agent."""
    query = request.query
    agent = request.headers.get("User-Agent", "").partition("/")[0] or "unknown"
    validation = query.get("fieldValidation") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        choices = ["", "Ignore", "Strict", "Warn"]
        raise invalid_options(_options_kind(request), not_supported("fieldValidation", validation, choices))
    return WriteOptions(
        dry_run=_dry_run(_options_kind(request), query.getall("dryRun", [])),
        # An apply must name its manager itself.
        field_manager=query.get("fieldManager") or ("" if request.content_type == PatchType.APPLY else agent),
        force=_is_true(query.get("force", "")),
        field_validation=validation,
        warnings=warnings,
    )


def _options_kind(request: web.Request) -> str:
    """The kind of the options that a request carries, which refusals of them name."""
    return {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}.get(
        request.method, "DeleteOptions"
    )


def _dry_run(kind: str, values: list[str]) -> bool:
    if any(value not in ("", "All") for value in values):
        raise invalid_options(kind, not_supported("dryRun", values, ["All"]))
    return "All" in values


def patch_type(request: web.Request) -> PatchType:
    try:
        return PatchType(request.content_type)
    except ValueError as error:
        raise unsupported_patch() from error


def delete_request(request: web.Request, body: Any) -> DeleteRequest:
    """Delete options from the body, or from the query."""
    options: Json = body if isinstance(body, dict) else {}
    preconditions = options.get("preconditions") or {}
    grace = options.get("gracePeriodSeconds")
    if grace is None and "gracePeriodSeconds" in request.query:
        grace = _number(request, "gracePeriodSeconds", 0)
    if options.get("orphanDependents") is not None and options.get("propagationPolicy"):
        detail = "orphanDependents and deletionPropagation cannot be both set"
        error = invalid_value("propagationPolicy", options["propagationPolicy"], detail)
        raise invalid_options("DeleteOptions", error)
    if options.get("orphanDependents"):
        options = {**options, "propagationPolicy": "Orphan"}
    return DeleteRequest(
        preconditions.get("uid"),
        preconditions.get("resourceVersion"),
        grace,
        options.get("propagationPolicy") or request.query.get("propagationPolicy"),
        _dry_run("DeleteOptions", [*(options.get("dryRun") or ()), *request.query.getall("dryRun", [])]),
    )
