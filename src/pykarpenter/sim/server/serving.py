"""Serves a store over TLS on loopback and writes the kubeconfig that reaches it.

The token lies in that file alone, readable by its owner; the certificate authority is made anew for each start.
"""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from types import TracebackType

from aiohttp import web

from pykarpenter.sim.server.application import Application
from pykarpenter.sim.server.certificates import make_certificates
from pykarpenter.sim.server.kubeconfig import kubeconfig, write_kubeconfig
from pykarpenter.sim.store import Store

LOOPBACK = "127.0.0.1"
# Open watches are ended first, so nothing is left that needs longer.
_SHUTDOWN_S = 1.0


class ServedCluster:
    """`async with ServedCluster(store, path) as served:` serves until the block ends."""

    def __init__(self, store: Store, kubeconfig_path: Path, *, port: int = 0, token: str = "") -> None:
        self._application = Application(store, token or (token := secrets.token_urlsafe(32)))
        self._token = token
        self._port = port
        self._runner: web.AppRunner | None = None
        self.kubeconfig_path = kubeconfig_path
        self.url = ""

    async def start(self) -> None:
        """Binds a port (a free one unless given) and writes the kubeconfig."""
        certificates = make_certificates()
        with tempfile.TemporaryDirectory(prefix="pykarpenter-tls-") as folder:
            context = certificates.server_context(Path(folder))
        runner = web.AppRunner(self._application.build(), access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        self._runner = runner
        site = web.TCPSite(runner, LOOPBACK, self._port, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"https://{LOOPBACK}:{port}"
        write_kubeconfig(self.kubeconfig_path, kubeconfig(self.url, certificates.authority, self._token))

    async def stop(self) -> None:
        """Ends open watches, then the server."""
        for bell in list(self._application.handlers.bells):
            bell.end()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> ServedCluster:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
