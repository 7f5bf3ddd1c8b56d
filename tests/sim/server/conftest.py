"""A store served on loopback, and an HTTPS client that trusts it."""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pykarpenter.sim.server import ServedCluster
from pykarpenter.sim.store import Store

from ..store.world import World


@dataclass
class Served:
    """The world behind the server, and requests to it."""

    world: World
    kubeconfig: Path
    url: str
    session: aiohttp.ClientSession

    @property
    def store(self) -> Store:
        return self.world.store

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        names.setdefault("Content-Type", "application/json")
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, self.url + path, data=data, headers=names) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def get(self, path: str, **headers: str) -> Any:
        status, body = await self.call("GET", path, **headers)
        assert status == 200, body
        return body


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    world = World()
    async with ServedCluster(world.store, tmp_path / "kubeconfig") as cluster:
        config = json.loads(cluster.kubeconfig_path.read_text())
        authority = b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        token = config["users"][0]["user"]["token"]
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}", "User-Agent": "tester/1.0"}, connector=connector
        ) as session:
            yield Served(world, cluster.kubeconfig_path, cluster.url, session)
