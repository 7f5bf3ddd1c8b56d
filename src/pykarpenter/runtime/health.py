"""The endpoints a cluster probes and scrapes: liveness, readiness, metrics, and on request a look inside.

`/healthz` only proves that the loop runs; `/readyz` asks every check and names those that fail. Metrics are rendered
in a thread, because the exposition of a big cluster would hold the loop for a good part of a second. `/debug` exists
only with profiling on, and shows code locations and counts, never the content of objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aiohttp import web

from pykarpenter.runtime import profiling

# A check answers None when all is well, else what is wrong.
Check = Callable[[], str | None]


@dataclass(slots=True)
class Endpoints:
    """Serves probes on one port and metrics on another; a port of 0 takes any free one."""

    expose: Callable[[], Iterator[bytes]]
    metrics_port: int = 8080
    health_port: int = 8081
    profiling: bool = False
    host: str = "0.0.0.0"  # noqa: S104 - probes and scrapes come from other machines
    checks: dict[str, Check] = field(default_factory=dict)
    _runners: list[web.AppRunner] = field(default_factory=list)
    ports: tuple[int, int] = (0, 0)

    async def start(self) -> None:
        """Begin to serve; OSError when a port is taken."""
        health = web.Application()
        health.router.add_get("/healthz", self._healthz)
        health.router.add_get("/readyz", self._readyz)
        metrics = web.Application()
        metrics.router.add_get("/metrics", self._metrics)
        if self.profiling:
            profiling.add_routes(metrics.router)
        self.ports = (await self._serve(metrics, self.metrics_port), await self._serve(health, self.health_port))

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _serve(self, app: web.Application, port: int) -> int:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, self.host, port).start()
        return int(runner.addresses[0][1])

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        problems = {name: problem for name, check in self.checks.items() if (problem := check()) is not None}
        if not problems:
            return web.Response(text="ok")
        text = "".join(f"[-]{name} failed: {problem}\n" for name, problem in problems.items())
        return web.Response(status=500, text=text)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        """Sent piece by piece: the first bytes are out before the last are rendered, and none of it waits in memory."""
        response = web.StreamResponse(headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
        await response.prepare(request)
        pieces = self.expose()
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            await response.write(piece)
        await response.write_eof()
        return response
