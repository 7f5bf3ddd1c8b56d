"""Remembers which workloads our commands displaced and when: in memory, and in one ConfigMap for the next process.

Written before a command begins, so that a crash on the way cannot make a workload move again as if for the first time.
A value that cannot be read counts as none; losing the memory costs calm, never safety.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pykarpenter.api import kinds
from pykarpenter.controllers.context import Context
from pykarpenter.controllers.permissions import MEMORY_NAME
from pykarpenter.core.disruption.calm import HORIZON_S
from pykarpenter.kube.errors import AlreadyExists, ApiError, Conflict, Fenced, NotFound, ServerFault, TooManyRequests
from pykarpenter.runtime.logs import get_logger

DEFAULT_NAMESPACE = "kube-system"
# The key in the ConfigMap: a JSON object from workload to epoch seconds.
KEY = "displaced"
# A ConfigMap holds a mebibyte; the longest ago are forgotten first.
MOST = 5000
# Errors that pass by themselves.
_PASSING = (ServerFault, TooManyRequests, Conflict, Fenced)


class Displaced:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._namespace = ctx.settings.leader_election_namespace or DEFAULT_NAMESPACE
        self._at: dict[str, float] = {}
        self._is_read = False
        self._log = get_logger(controller="disruption")

    def at(self) -> Mapping[str, float]:
        """When each workload was last displaced, as far as it still counts."""
        now = self._ctx.clock.now()
        return {name: at for name, at in self._at.items() if now - at < HORIZON_S}

    async def read(self) -> None:
        """What the process before left behind, once; a server that does not answer is asked again next time."""
        if self._is_read:
            return
        try:
            found = await self._ctx.api.get(kinds.CONFIG_MAP, MEMORY_NAME, self._namespace)
            self._at = {**_decode(found.data.get(KEY, "")), **self._at}
        except NotFound:
            pass
        except (*_PASSING, OSError) as error:
            self._log.error("reading which workloads were displaced failed", error=error)
            return
        except ApiError as error:
            self._log.error("which workloads were displaced cannot be read", error=error)
        self._is_read = True

    async def note(self, workloads: Iterable[str]) -> bool:
        """Remember that these are displaced now; False when it cannot be written down at present."""
        now = self._ctx.clock.now()
        before = self._at
        self._at = {**self.at(), **dict.fromkeys(workloads, now)}
        if len(self._at) > MOST:
            newest = sorted(self._at.items(), key=lambda item: (-item[1], item[0]))[:MOST]
            self._at = dict(newest)
        try:
            await self._write()
        except (*_PASSING, OSError) as error:
            self._log.error("writing down which workloads were displaced failed", error=error)
            self._at = before
            return False
        except ApiError as error:
            # Missing rights or a missing namespace stay as they are: better a short memory than no consolidation.
            self._log.error("which workloads were displaced cannot be written down; a restart forgets", error=error)
        return True

    async def _write(self) -> None:
        text = msgspec.json.encode(dict(sorted((name, round(at)) for name, at in self._at.items()))).decode()
        body = {"data": {KEY: text}}
        try:
            await self._ctx.api.patch(kinds.CONFIG_MAP, MEMORY_NAME, body, self._namespace)
        except NotFound:
            named = {"metadata": {"name": MEMORY_NAME, "namespace": self._namespace}, **body}
            try:
                await self._ctx.api.create(kinds.CONFIG_MAP, named, self._namespace)
            except AlreadyExists:
                await self._ctx.api.patch(kinds.CONFIG_MAP, MEMORY_NAME, body, self._namespace)


def _decode(text: str) -> dict[str, float]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, float])
    except msgspec.DecodeError:
        return {}
