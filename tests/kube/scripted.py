"""A KubeApi that plays a script: what each list and each watch answers, and what was asked of it."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

import msgspec

from pykarpenter.api.kinds import POD
from pykarpenter.api.pods import Pod
from pykarpenter.kube.contract import Page, WatchEvent
from pykarpenter.kube.errors import AlreadyExists, Conflict, Invalid, NotFound

FOREVER = "forever"


def pod(name, version="1", uid="", namespace="default", node="", created="2026-01-01T00:00:00Z"):
    body = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": version,
            "creationTimestamp": created,
        },
        "spec": {"nodeName": node},
    }
    return msgspec.convert(body, Pod)


def added(obj):
    return WatchEvent("ADDED", obj.metadata.resource_version, obj)


def modified(obj):
    return WatchEvent("MODIFIED", obj.metadata.resource_version, obj)


def deleted(obj, version=None):
    return WatchEvent("DELETED", version or obj.metadata.resource_version, obj)


def bookmark(version, end=False):
    return WatchEvent("BOOKMARK", version, None, initial_events_end=end)


@dataclass
class ScriptedApi:
    """Lists and watches are answered in turn; a script that ran out lists nothing new and watches in silence.

    A list is a Page or an error, a watch a list of events, errors, seconds to wait, or FOREVER.
    """

    lists: deque = field(default_factory=deque)
    watches: deque = field(default_factory=deque)
    streams_lists: bool = False
    calls: list = field(default_factory=list)

    def now(self):
        return asyncio.get_running_loop().time()

    async def list_page(self, kind, selection=None, *, limit=0, continue_token="", resource_version=""):
        self.calls.append(("list", self.now(), limit, continue_token))
        answer = self.lists.popleft() if self.lists else Page([], "0")
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(self, kind, selection=None, *, resource_version="", send_initial_events=False, timeout_s=0.0):
        self.calls.append(("watch", self.now(), resource_version, send_initial_events))
        if send_initial_events and not self.streams_lists:
            raise Invalid("sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
        for step in self.watches.popleft() if self.watches else [FOREVER]:
            if isinstance(step, Exception):
                raise step
            if step == FOREVER:
                await asyncio.sleep(10**9)
            elif isinstance(step, int | float):
                await asyncio.sleep(step)
            else:
                yield step

    def asked(self, verb):
        return [call for call in self.calls if call[0] == verb]


class LeaseApi:
    """A store of Leases and nothing else, with optimistic locking; `fail` makes requests raise, `delay` slow."""

    def __init__(self):
        self.leases = {}
        self.version = 0
        self.fail = None
        self.delay = 0.0
        self.writes = []

    async def _pass(self):
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.fail is not None:
            raise self.fail

    async def get(self, kind, name, namespace=""):
        await self._pass()
        if (namespace, name) not in self.leases:
            raise NotFound(name)
        return self._decoded(kind, self.leases[namespace, name])

    async def create(self, kind, body, namespace=""):
        await self._pass()
        key = (namespace, body["metadata"]["name"])
        if key in self.leases:
            raise AlreadyExists(key[1])
        self._store(key, body)
        return self._decoded(kind, self.leases[key])

    async def patch(self, kind, name, patch, namespace="", **_):
        await self._pass()
        current = self.leases[namespace, name]
        if patch["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"]:
            raise Conflict(name)
        body = {**current, "spec": {**current["spec"], **patch["spec"]}}
        self._store((namespace, name), body)
        return self._decoded(kind, self.leases[namespace, name])

    def _store(self, key, body):
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.leases[key] = {**body, "metadata": metadata}
        self.writes.append((asyncio.get_running_loop().time(), body["spec"]["holderIdentity"]))

    def _decoded(self, kind, body):
        return msgspec.convert(body, kind.type)

    def holder(self):
        return next(iter(self.leases.values()))["spec"]["holderIdentity"]


__all__ = ["FOREVER", "POD", "LeaseApi", "Page", "ScriptedApi", "added", "bookmark", "deleted", "modified", "pod"]
