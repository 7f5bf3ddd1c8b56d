"""Leader election by a Lease: at most one process acts, and it knows how long it still may.

Whether a lease has run out is judged by monotonic time since its record was last seen to change, never by comparing
wall clocks (F40). The holder counts from the moment it *sent* its last successful renewal, so it stops no later than
anyone else can start. A holder that cannot renew for the renew deadline, or whose loop was blocked for so long (F48),
steps down before its lease ends.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable
from secrets import token_hex

from pykarpenter.api.kinds import LEASE
from pykarpenter.api.nodes import Lease
from pykarpenter.api.timestamps import format_micro_timestamp
from pykarpenter.kube.contract import Json, KubeApi
from pykarpenter.kube.deadline import at_most
from pykarpenter.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from pykarpenter.kube.observer import IGNORE_KUBE, KubeObserver
from pykarpenter.runtime.clock import Clock
from pykarpenter.runtime.logs import get_logger
from pykarpenter.runtime.waiting import wait_first_done

# design.md §8.6, the defaults of other controllers too.
LEASE_DURATION_S = 15
RENEW_DEADLINE_S = 10.0
RETRY_PERIOD_S = 2.0
# Acquiring waits up to this factor longer, so that candidates do not knock in step.
_JITTER = 1.2


def new_identity() -> str:
    """`<hostname>_<random>`: unique per process, so a restarted pod never takes itself for its predecessor."""
    return f"{socket.gethostname()}_{token_hex(8)}"


class LeaderElector:
    def __init__(
        self,
        api: KubeApi,
        name: str,
        namespace: str,
        identity: str,
        clock: Clock,
        *,
        chance: Callable[[], float] | None = None,
        observer: KubeObserver = IGNORE_KUBE,
    ) -> None:
        """`api` should not share a rate limit with the work it guards."""
        self._api = api
        self._name = name
        self._namespace = namespace
        self.identity = identity
        self._clock = clock
        self._chance = chance or random.Random(identity).random
        self._observer = observer
        self._seen: tuple[object, ...] | None = None
        self._seen_at = 0.0
        self._lease: Lease | None = None
        self._renewed_at: float | None = None
        self._log = get_logger(controller="leader-election", lease=f"{namespace}/{name}", identity=identity)

    def holds_lease(self) -> bool:
        """This process leads and nobody else can have taken over yet."""
        return self._renewed_at is not None and self.remaining_s() > 0

    def remaining_s(self) -> float:
        """Seconds until another process may take the lease; zero when it is not held."""
        if self._renewed_at is None:
            return 0.0
        return max(0.0, self._renewed_at + LEASE_DURATION_S - self._clock.monotonic())

    async def run(self, on_started: Callable[[], Awaitable[None]], on_stopped: Callable[[], None]) -> None:
        """Wait for the lease, run `on_started` while it is held, then `on_stopped`; returns when the lease was lost.

        When `on_started` ends by itself, or this is cancelled, the lease is released so that a successor need not
        wait; its error, if any, is raised.
        """
        await self._acquire()
        loop = asyncio.get_running_loop()
        work = loop.create_task(_awaited(on_started), name="leader-work")
        renewal = loop.create_task(self._renew_until_lost(), name="leader-renewal")
        lost = False
        try:
            await wait_first_done(work, renewal)
            lost = renewal.done()
        finally:
            if lost:
                self._step_down()
            # The lease goes on being renewed while the work winds down, unless it is lost already.
            await _stop(work)
            await _stop(renewal)
            self._step_down()
            on_stopped()
            if not lost:
                await self._release()
        if work.done() and not work.cancelled():
            work.result()

    async def _acquire(self) -> None:
        while True:
            if await self._try(RENEW_DEADLINE_S / 2):
                break
            await asyncio.sleep(RETRY_PERIOD_S * (1.0 + _JITTER * self._chance()))
        self._observer.leading(self._name, True)
        self._log.info("became the leader")

    async def _renew_until_lost(self) -> None:
        while True:
            await asyncio.sleep(RETRY_PERIOD_S)
            while (left := self._until_deadline()) > 0:
                if await self._try(min(left, RENEW_DEADLINE_S / 2)):
                    break
                if self._lease is not None and self._lease.spec.holder_identity != self.identity:
                    self._log.error("lease taken by another", holder=self._lease.spec.holder_identity)
                    return
                await asyncio.sleep(min(RETRY_PERIOD_S, max(0.0, self._until_deadline())))
            else:
                self._log.error("lease not renewed in time, stepping down")
                return

    def _until_deadline(self) -> float:
        """Seconds left to renew; a loop that was blocked finds them spent (F48)."""
        if self._renewed_at is None:
            return 0.0
        return self._renewed_at + RENEW_DEADLINE_S - self._clock.monotonic()

    async def _try(self, limit_s: float) -> bool:
        """Acquire or renew once within `limit_s`; whatever goes wrong is a no."""
        sent_at = self._clock.monotonic()
        try:
            with at_most(limit_s):
                async with asyncio.timeout(limit_s):
                    held = await self._acquire_or_renew()
        except TimeoutError:
            self._log.error("lease request timed out")
            return False
        except (Conflict, AlreadyExists):
            return False
        except (ApiError, OSError) as error:
            self._log.error("lease request failed", error=error)
            return False
        if held and self._clock.monotonic() - sent_at < RENEW_DEADLINE_S:
            self._renewed_at = sent_at
            return True
        return False

    async def _acquire_or_renew(self) -> bool:
        if await self._renew_known():
            return True
        try:
            lease = await self._api.get(LEASE, self._name, self._namespace)
        except NotFound:
            body = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": self._spec(None),
            }
            self._note(await self._api.create(LEASE, body, self._namespace))
            return True
        self._note(lease)
        holder = lease.spec.holder_identity
        if holder and holder != self.identity and not self._expired(lease):
            return False
        patch = {
            "metadata": {"resourceVersion": lease.metadata.resource_version},
            "spec": self._spec(lease),
        }
        self._note(await self._api.patch(LEASE, self._name, patch, self._namespace))
        return True

    async def _renew_known(self) -> bool:
        """Renew without reading first; false when somebody else wrote the lease meanwhile, or it is not ours."""
        known = self._lease
        if self._renewed_at is None or known is None or known.spec.holder_identity != self.identity:
            return False
        patch = {"metadata": {"resourceVersion": known.metadata.resource_version}, "spec": self._spec(known)}
        try:
            self._note(await self._api.patch(LEASE, self._name, patch, self._namespace))
        except (Conflict, NotFound):
            self._observer.leader_slowpath(self._name)
            return False
        return True

    def _spec(self, current: Lease | None) -> Json:
        now = format_micro_timestamp(self._clock.now())
        spec: Json = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": LEASE_DURATION_S,
            "renewTime": now,
        }
        if current is None or current.spec.holder_identity != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = 0 if current is None else (current.spec.lease_transitions or 0) + 1
        return spec

    def _note(self, lease: Lease) -> None:
        spec = lease.spec
        record = (spec.holder_identity, spec.renew_time, spec.acquire_time, spec.lease_transitions)
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock.monotonic()
        self._lease = lease

    def _expired(self, lease: Lease) -> bool:
        duration = lease.spec.lease_duration_seconds or LEASE_DURATION_S
        return self._clock.monotonic() - self._seen_at > duration

    def _step_down(self) -> None:
        if self._renewed_at is not None:
            self._renewed_at = None
            self._observer.leading(self._name, False)
            self._log.info("no longer the leader")

    async def _release(self) -> None:
        """Hand the lease back; a failure only makes the successor wait for its end."""
        lease = self._lease
        if lease is None or lease.spec.holder_identity != self.identity:
            return
        patch = {
            "metadata": {"resourceVersion": lease.metadata.resource_version},
            "spec": {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "renewTime": format_micro_timestamp(self._clock.now()),
            },
        }
        try:
            async with asyncio.timeout(RENEW_DEADLINE_S / 2):
                await self._api.patch(LEASE, self._name, patch, self._namespace)
        except (ApiError, OSError, TimeoutError) as error:
            self._log.error("lease not released", error=error)


async def _awaited(start: Callable[[], Awaitable[None]]) -> None:
    await start()


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
