"""The web application: who may come in, and which paths lead where."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from aiohttp import web

from pykarpenter.kube.errors import ApiError, ServerFault, Unauthorized
from pykarpenter.sim.server import discovery, openapi, requests, reviews
from pykarpenter.sim.server.answers import body_response, error_response, json_response
from pykarpenter.sim.server.handlers import Handlers
from pykarpenter.sim.store import Store
from pykarpenter.sim.store.entries import encode
from pykarpenter.sim.store.refusals import no_such_resource

_Next = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Everybody may ask whether the server lives and which version it is.
_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_LARGEST_BODY = 8 * 1024 * 1024
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+pykarpenter",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "cpython",
    "platform": "linux/amd64",
}


class Application:
    """Builds the routes over one store."""

    def __init__(self, store: Store, token: str) -> None:
        self._store = store
        self._token = token.encode()
        self.handlers = Handlers(store)
        self._openapi_v2: tuple[int, bytes] | None = None

    def build(self) -> web.Application:
        application = web.Application(middlewares=[self._errors, self._authenticated], client_max_size=_LARGEST_BODY)
        routes = [
            ("/version", self._version),
            ("/healthz", self._healthy),
            ("/livez", self._healthy),
            ("/readyz", self._healthy),
            ("/api", self._core),
            ("/apis", self._groups),
            ("/apis/{group}", self._group),
            ("/openapi/v2", self._open_api_v2),
            ("/openapi/v3", self._open_api_v3_index),
            ("/openapi/v3/api/{version}", self._open_api_v3),
            ("/openapi/v3/apis/{group}/{version}", self._open_api_v3),
            ("/api/{version}", self._resources),
            ("/apis/{group}/{version}", self._resources),
        ]
        application.add_routes([web.get(path, handler) for path, handler in routes])
        application.add_routes(
            [
                web.route("*", "/api/{version}/{rest:.+}", self._objects),
                web.route("*", "/apis/{group}/{version}/{rest:.+}", self._objects),
                web.route("*", "/{anything:.*}", self._nothing),
            ]
        )
        return application

    @web.middleware
    async def _errors(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        try:
            return await handler(request)
        except ApiError as error:
            return error_response(error)
        except web.HTTPRequestEntityTooLarge as error:
            return error_response(ApiError(str(error.text), code=413, reason="RequestEntityTooLarge"))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            # A body the checks did not foresee must not take the connection down.
            return error_response(ServerFault(f"{type(error).__name__}: {error}"))

    @web.middleware
    async def _authenticated(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        known = kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)
        if not known and (kind or request.path not in _OPEN_PATHS):
            raise Unauthorized("Unauthorized")
        return await handler(request)

    async def _version(self, request: web.Request) -> web.StreamResponse:
        return json_response(VERSION)

    async def _healthy(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _nothing(self, request: web.Request) -> web.StreamResponse:
        raise no_such_resource()

    async def _core(self, request: web.Request) -> web.StreamResponse:
        if "apidiscovery" in request.headers.get("Accept", ""):
            return self._aggregated(core=True)
        return json_response(discovery.core_versions(request.host))

    async def _groups(self, request: web.Request) -> web.StreamResponse:
        if "apidiscovery" in request.headers.get("Accept", ""):
            return self._aggregated(core=False)
        return json_response(discovery.group_list(self._store))

    def _aggregated(self, *, core: bool) -> web.Response:
        body = encode(discovery.aggregated(self._store, core=core))
        return web.Response(body=body, headers={"Content-Type": discovery.AGGREGATED})

    async def _group(self, request: web.Request) -> web.StreamResponse:
        found = discovery.one_group(self._store, request.match_info["group"])
        if found is None:
            raise no_such_resource()
        return json_response(found)

    async def _resources(self, request: web.Request) -> web.StreamResponse:
        group, version = request.match_info.get("group", ""), request.match_info["version"]
        found = discovery.resource_list(self._store, group, version)
        if found is None:
            raise no_such_resource()
        return json_response(found)

    async def _open_api_v2(self, request: web.Request) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        if "protobuf" in accept and "json" not in accept:
            # kubectl asks for this form about kinds that the newer documents lack, to learn that nobody knows them.
            return web.Response(body=openapi.V2_EMPTY, headers={"Content-Type": openapi.V2_PROTOBUF})
        kinds = self._store.table("apiextensions.k8s.io", "customresourcedefinitions").history.end
        if self._openapi_v2 is None or self._openapi_v2[0] != kinds:
            self._openapi_v2 = (kinds, encode(openapi.v2(self._store)))
        return body_response(self._openapi_v2[1])

    async def _open_api_v3_index(self, request: web.Request) -> web.StreamResponse:
        return json_response(openapi.v3_index(self._store))

    async def _open_api_v3(self, request: web.Request) -> web.StreamResponse:
        found = openapi.v3(self._store, request.match_info.get("group", ""), request.match_info["version"])
        if found is None:
            raise no_such_resource()
        return json_response(found)

    async def _objects(self, request: web.Request) -> web.StreamResponse:
        where = request.match_info
        review = reviews.plural_of(where.get("group", ""), where["version"], where["rest"])
        if review is not None and request.method == "POST":
            # The answer is the same whatever is asked; what cannot be read is not repeated in it.
            body = None if "protobuf" in request.content_type else await requests.read_body(request)
            return json_response(reviews.answer(where.get("group", ""), review, body), 201)
        target = requests.read_target(self._store, where.get("group", ""), where["version"], where["rest"])
        return await self.handlers.handle(request, target)
