"""Answers in the form a client asked for: objects, lists, Tables, Statuses."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from pykarpenter.kube.errors import ApiError
from pykarpenter.sim.server.statuses import failure
from pykarpenter.sim.server.tables import scale_table, table
from pykarpenter.sim.store import Entry, Resource
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.listing import Listing

_COMPRESS_ABOVE = 128 * 1024


def wants_table(request: web.Request) -> bool:
    """kubectl lists the forms it takes, best first."""
    first = request.headers.get("Accept", "").split(",")[0].replace(" ", "")
    return "as=Table" in first and "g=meta.k8s.io" in first


def included(request: web.Request) -> str:
    return request.query.get("includeObject", "Metadata")


def body_response(body: bytes, status: int = 200, warnings: list[str] | None = None) -> web.Response:
    response = web.Response(body=body, status=status, content_type="application/json")
    for warning in warnings or ():
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    if len(body) > _COMPRESS_ABOVE:
        response.enable_compression()
    return response


def scale_response(request: web.Request, scale: Json, now: float, status: int) -> web.Response:
    return json_response(scale_table(scale, now) if wants_table(request) else scale, status)


def json_response(value: Any, status: int = 200) -> web.Response:
    return body_response(msgspec.json.encode(value), status)


def error_response(error: ApiError) -> web.Response:
    response = json_response(failure(error), error.code)
    if error.retry_after_s:
        response.headers["Retry-After"] = str(int(error.retry_after_s))
    return response


def entry_response(
    request: web.Request,
    resource: Resource,
    entry: Entry,
    now: float,
    status: int = 200,
    warnings: list[str] | None = None,
) -> web.Response:
    if wants_table(request):
        meta = {"resourceVersion": entry.metadata.get("resourceVersion", "")}
        return json_response(table(resource, [entry], meta, now, included(request)), status)
    return body_response(entry.encoded(), status, warnings)


def list_response(request: web.Request, resource: Resource, listing: Listing, now: float) -> web.Response:
    meta: Json = {"resourceVersion": str(listing.rv)}
    if listing.continue_token:
        meta["continue"] = listing.continue_token
        meta["remainingItemCount"] = listing.remaining
    if wants_table(request):
        return json_response(table(resource, listing.entries, meta, now, included(request)))
    head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": meta}
    opening = msgspec.json.encode(head)[:-1]
    items = b",".join([entry.encoded() for entry in listing.entries])
    return body_response(opening + b',"items":[' + items + b"]}")
