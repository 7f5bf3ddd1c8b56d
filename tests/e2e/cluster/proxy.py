"""A loopback proxy in front of the API server that can refuse or break requests on command.

The program talks plain HTTP to it, with its own token in the header; the proxy talks TLS to the API server. It runs on
an event loop of its own in a thread and streams both ways, so watches work through it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from .flags import HOST
from .ports import free_ports

_TOO_MANY = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "TooManyRequests",
    "code": 429,
    "message": "the server has received too many requests and has asked us to try again later",
    "details": {"retryAfterSeconds": 1},
}
# Connection-level headers are each side's own.
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "host", "keep-alive"}


class Proxy:
    """`refuse` decides, by method and path, which requests get 429 instead of an answer."""

    def __init__(self, server: str, ca: Path) -> None:
        self._server = server
        self._ca = ca
        (self.port,) = free_ports(1)
        self.url = f"http://{HOST}:{self.port}"
        self.refuse: Callable[[str, str], bool] = lambda method, path: False
        self.refused = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(timeout=30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(timeout=30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)
        self._loop.close()
        gc.collect()

    def kubeconfig(self, original: Path, path: Path) -> Path:
        """The same user on the same cluster, through this proxy."""
        config = json.loads(original.read_text())
        config["clusters"][0]["cluster"] = {"server": self.url}
        path.write_text(json.dumps(config))
        return path

    async def _start(self) -> None:
        tls = ssl.create_default_context(cafile=str(self._ca))
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self.port).start()

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._client.close()
        # TLS connections close in steps of the loop: stopping it at once would leave their sockets to the collector,
        # which complains in whatever test runs then.
        await asyncio.sleep(1.0)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if self.refuse(request.method, request.path_qs):
            self.refused += 1
            return web.json_response(_TOO_MANY, status=429, headers={"Retry-After": "1"})
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        body = await request.read()
        async with self._client.request(
            request.method, self._server + request.path_qs, headers=headers, data=body or None
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response
