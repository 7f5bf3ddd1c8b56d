"""What the server does with each verb on each target."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from pykarpenter.kube.errors import ApiError, BadRequest, MethodNotAllowed
from pykarpenter.sim.api import WatchBell
from pykarpenter.sim.server import requests
from pykarpenter.sim.server.answers import entry_response, json_response, list_response, scale_response
from pykarpenter.sim.server.requests import Target
from pykarpenter.sim.server.statuses import success
from pykarpenter.sim.server.streams import stream
from pykarpenter.sim.store import Entry, Store
from pykarpenter.sim.store.refusals import no_such_resource
from pykarpenter.sim.store.scale import scale_of

_Handler = Callable[[web.Request, Target], Awaitable[web.StreamResponse]]


_NOTHING_RUNS = "nothing can be run in them"
_NEED_CONTAINERS = {
    "log": "there are no logs",
    "exec": _NOTHING_RUNS,
    "attach": "there is nothing to attach to",
    "portforward": "no port answers",
    "proxy": "no port answers",
    "ephemeralcontainers": _NOTHING_RUNS,
}


class Handlers:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.bells: set[WatchBell] = set()
        self._on_collection: dict[str, _Handler] = {
            "GET": self._list_or_watch,
            "POST": self._create,
            "DELETE": self._delete_collection,
        }
        self._on_object: dict[str, _Handler] = {
            "GET": self._get,
            "PUT": self._update,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }

    async def handle(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Answers one request; raises ApiError."""
        if target.subresource:
            return await self._on_subresource(request, target)
        handlers = self._on_object if target.name else self._on_collection
        handler = handlers.get(request.method)
        if handler is None:
            raise _not_allowed()
        return await handler(request, target)

    async def _on_subresource(self, request: web.Request, target: Target) -> web.StreamResponse:
        resource, method = target.resource, request.method
        is_pod = resource.plural == "pods" and not resource.group
        if target.subresource in ("eviction", "binding") and is_pod and method == "POST":
            return await (self._evict if target.subresource == "eviction" else self._bind)(request, target)
        if target.subresource in _NEED_CONTAINERS and is_pod:
            self._store.get(resource, target.name, target.namespace)
            text = _NEED_CONTAINERS[target.subresource]
            raise BadRequest(f"pods of the embedded cluster run no containers, so {text}")
        served = (
            (target.subresource == "status" and resource.has_status)
            or (target.subresource == "scale" and resource.scale is not None)
            or (target.subresource == "resize" and is_pod)
        )
        if not served:
            raise no_such_resource()
        handler = self._on_object.get(method)
        if handler is None or method == "DELETE":
            raise _not_allowed()
        return await handler(request, target)

    def _answer(
        self, request: web.Request, target: Target, entry: Entry, status: int = 200, warnings: list[str] | None = None
    ) -> web.Response:
        if target.subresource == "scale":
            return scale_response(request, scale_of(target.resource, entry.obj), self._store.now(), status)
        return entry_response(request, target.resource, entry, self._store.now(), status, warnings)

    async def _list_or_watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        if requests.wants_watch(request):
            return await stream(request, self._store, target, self.bells)
        listing = self._store.list_page(target.resource, requests.list_request(request, target))
        return list_response(request, target.resource, listing, self._store.now())

    async def _get(self, request: web.Request, target: Target) -> web.StreamResponse:
        if requests.wants_watch(request):
            return await stream(request, self._store, target, self.bells)
        entry = self._store.get(target.resource, target.name, target.namespace)
        return self._answer(request, target, entry)

    async def _create(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await requests.read_body(request)
        _check_kind(target, body)
        warnings: list[str] = []
        options = requests.write_options(request, warnings)
        entry = self._store.create(target.resource, body, target.namespace, options)
        return self._answer(request, target, entry, 201, warnings)

    async def _update(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await requests.read_body(request)
        warnings: list[str] = []
        entry = self._store.update(
            target.resource,
            target.name,
            body,
            target.namespace,
            subresource=target.subresource,
            options=requests.write_options(request, warnings),
        )
        return self._answer(request, target, entry, 200, warnings)

    async def _patch(self, request: web.Request, target: Target) -> web.StreamResponse:
        patch_type, body = requests.patch_type(request), await requests.read_body(request)
        warnings: list[str] = []
        existed = self._store.find(target.resource, target.name, target.namespace) is not None
        entry = self._store.patch(
            target.resource,
            target.name,
            body,
            target.namespace,
            patch_type=patch_type,
            subresource=target.subresource,
            options=requests.write_options(request, warnings),
        )
        return self._answer(request, target, entry, 200 if existed else 201, warnings)

    async def _delete(self, request: web.Request, target: Target) -> web.StreamResponse:
        options = requests.delete_request(request, await requests.read_body(request))
        entry = self._store.delete(target.resource, target.name, target.namespace, options)
        is_gone = self._store.find(target.resource, target.name, target.namespace) is None
        if not is_gone or target.resource.plural == "pods":
            return self._answer(request, target, entry)
        uid = entry.metadata["uid"]
        return json_response(
            success(name=target.name, group=target.resource.group, kind=target.resource.plural, uid=uid)
        )

    async def _delete_collection(self, request: web.Request, target: Target) -> web.StreamResponse:
        options = requests.delete_request(request, await requests.read_body(request))
        self._store.delete_collection(target.resource, requests.list_request(request, target), options)
        return json_response(success(group=target.resource.group, kind=target.resource.plural))

    async def _evict(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await requests.read_body(request)
        options: Any = body.get("deleteOptions") if isinstance(body, dict) else None
        self._store.evict(target.name, target.namespace, requests.delete_request(request, options))
        return json_response(success(), 201)

    async def _bind(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await requests.read_body(request)
        node = ((body or {}).get("target") or {}).get("name")
        if not node:
            raise BadRequest("target.name: Required value: the node to bind to")
        uid = ((body or {}).get("metadata") or {}).get("uid", "")
        self._store.bind(target.name, target.namespace, node, uid)
        return json_response(success(), 201)


def _check_kind(target: Target, body: Any) -> None:
    """Built-in kinds are known by their path; of a custom one the server has no type to fall back on."""
    if target.resource.custom is None or not isinstance(body, dict):
        return
    for field in ("kind", "apiVersion"):
        if not body.get(field):
            kind = target.resource.kind
            raise BadRequest(
                f"the object provided is unrecognized (must be of type {kind}): Object {field!r} is missing"
            )


def _not_allowed() -> ApiError:
    return MethodNotAllowed("the server does not allow this method on the requested resource")
