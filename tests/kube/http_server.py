"""A scripted API server on loopback, in the same loop as the client, so that both live on virtual time."""

import asyncio
import json
from contextlib import asynccontextmanager

from aiohttp import web

from pykarpenter.kube.client import HttpApi
from pykarpenter.kube.config import ClusterConfig
from pykarpenter.runtime.virtual_loop import running_clock


class ScriptedServer:
    """Answers requests by a list of handlers in turn (the last one for all that follow) and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def handle(self, request):
        body = await request.read()
        self.asked.append(
            {
                "at": asyncio.get_running_loop().time(),
                "method": request.method,
                "path": request.path,
                "query": dict(request.query),
                "headers": request.headers,
                "body": json.loads(body) if body else None,
            }
        )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request) if callable(answer) else answer


def status(code, reason="", message="", headers=None, **details):
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
    if details:
        body["details"] = details

    async def answer(request):
        return web.json_response(body, status=code, headers=headers)

    return answer


def ok(body):
    async def answer(request):
        return web.json_response(body)

    return answer


def stream(*chunks):
    """A watch: bytes are sent as they are, numbers are seconds to wait."""

    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            if isinstance(chunk, int | float):
                await asyncio.sleep(chunk)
            else:
                await response.write(chunk)
        return response

    return answer


@asynccontextmanager
async def serving(*answers, ssl_context=None, **config):
    """The server and a client of it."""
    server = ScriptedServer(*answers)
    runner = web.ServerRunner(web.Server(server.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    scheme = "https" if ssl_context else "http"
    client_options = {key: config.pop(key) for key in ("qps", "burst", "observer") if key in config}
    api = HttpApi(
        ClusterConfig(server=f"{scheme}://127.0.0.1:{port}", **config), clock=running_clock(), **client_options
    )
    try:
        yield server, api
    finally:
        await api.close()
        await runner.cleanup()
