"""What a behaviour is tried on: a cluster behind the `KubeApi` contract, and what was found there.

Behaviours are written once. They ask questions; each answer is compared with what Kubernetes promises and, where both
clusters are at hand, with the other cluster's answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.errors import ApiError

T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """One question, the answer of a cluster, and the answer that was expected."""

    question: str
    answer: str
    expected: str


@dataclass
class Side:
    """One cluster: a client, a namespace for the behaviour alone, and a way to make it forget its history."""

    api: KubeApi
    namespace: str
    forget_history: Callable[[], Awaitable[None]]
    findings: list[Finding] = field(default_factory=list)

    def find(self, question: str, answer: object, expected: object) -> None:
        self.findings.append(Finding(question, _said(answer), _said(expected)))

    async def find_refusal(self, question: str, call: Awaitable[object], expected: str) -> ApiError | None:
        """Note how a call is answered: `accepted`, or code and reason; the error, if there was one."""
        try:
            await call
        except ApiError as error:
            self.find(question, f"{error.code} {error.reason}", expected)
            return error
        self.find(question, "accepted", expected)
        return None


async def eventually(look: Callable[[], Awaitable[T]], timeout_s: float = 20.0) -> T:
    """The first truthy answer, or the last one when the time is up: controllers need a moment."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        seen = await look()
        if seen or loop.time() >= deadline:
            return seen
        await asyncio.sleep(0.1)


def refused_fields(error: ApiError | None) -> str:
    """The field paths that a refusal names, in its own order."""
    causes: list[dict[str, Any]] = (error.details.get("causes") or []) if error is not None else []
    return ", ".join(dict.fromkeys(str(cause.get("field", "")) for cause in causes))


def messages(error: ApiError | None) -> str:
    causes: list[dict[str, Any]] = (error.details.get("causes") or []) if error is not None else []
    return "; ".join(dict.fromkeys(str(cause.get("message", "")) for cause in causes))


def _said(answer: object) -> str:
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if isinstance(answer, list | tuple):
        return ", ".join(map(_said, answer)) or "none"
    return str(answer)
