"""A KubeApi that only looks: every write is refused before it is sent, Events and Leases included."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pykarpenter.kube.errors import Fenced
from pykarpenter.kube.gated import GatedApi

T = TypeVar("T")


class DryRunApi(GatedApi):
    """Reads pass; writes raise Fenced. The last line of defence: a dry run is not meant to try."""

    async def _write(self, verb: str, kind: str, send: Callable[[], Awaitable[T]]) -> T:
        raise Fenced(f"{verb} of {kind} not sent: this is a dry run")
