"""The client, the reflector, leases and events against a real API server: what the doubles promise is true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pykarpenter.api import kinds
from pykarpenter.kube.cache import Cache, Change
from pykarpenter.kube.client import HttpApi
from pykarpenter.kube.config import load_config
from pykarpenter.kube.contract import DeleteOptions, Preconditions, Selection, list_all
from pykarpenter.kube.deadline import at_most
from pykarpenter.kube.errors import AlreadyExists, Conflict, Invalid, NotFound, TooManyRequests
from pykarpenter.kube.events import EventRecorder, reference_to
from pykarpenter.kube.leases import LeaderElector
from pykarpenter.kube.observer import IgnoreKube
from pykarpenter.kube.reflector import Reflector
from pykarpenter.runtime.clock import SystemClock

from .cluster import Cluster
from .workloads import pause_pod

CLOCK = SystemClock()


@asynccontextmanager
async def client(cluster: Cluster, **options: Any) -> AsyncIterator[HttpApi]:
    config = load_config(CLOCK, kubeconfig=str(cluster.admin_kubeconfig))
    async with HttpApi(config, clock=CLOCK, **options) as api:
        yield api


async def until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.05)


def run(story: Callable[[HttpApi], Awaitable[None]], cluster: Cluster, **options: Any) -> None:
    async def main() -> None:
        async with client(cluster, **options) as api:
            await story(api)

    asyncio.run(main())


class Requests(IgnoreKube):
    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    def request(self, verb: str, kind: str, subresource: str, code: str, seconds: float) -> None:
        self.made.append((verb, code))


def test_the_reflector_follows_a_cluster_through_a_crash_of_its_server(cluster: Cluster, namespace: str) -> None:
    """Streaming list, live changes, a killed server, and deletions that happened around it."""
    observed = Requests()

    async def story(api: HttpApi) -> None:
        for name in ("before-1", "before-2"):
            await api.create(kinds.POD, pause_pod(namespace, name, cpu="1"), namespace)
        cache: Cache[Any] = Cache()
        told: list[tuple[str, bool]] = []

        def hear(change: Change[Any]) -> None:
            obj = change.new or change.old
            if change.old is None or change.new is None:
                told.append((f"{'+' if change.new else '-'}{obj.name}", change.initial))

        selection = Selection(namespace=namespace)
        reflector = Reflector(
            api, kinds.POD, cache, clock=CLOCK, selection=selection, handlers=[hear], observer=observed
        )
        running = asyncio.create_task(reflector.run())
        await reflector.wait_synced()
        assert told == [("+before-1", True), ("+before-2", True)]
        assert ("LIST", "200") not in observed.made, "1.36 serves streaming lists"
        await api.create(kinds.POD, pause_pod(namespace, "live", cpu="1"), namespace)
        await until(lambda: f"{namespace}/live" in cache)
        # On this thread, although it holds the loop: the server lives no longer than the thread that started it.
        cluster.restart_apiserver(kill=True)
        await api.delete(kinds.POD, "before-1", namespace, DeleteOptions(grace_period_s=0))
        await api.create(kinds.POD, pause_pod(namespace, "after", cpu="1"), namespace)
        await until(lambda: f"{namespace}/after" in cache and f"{namespace}/before-1" not in cache)
        assert [key.rsplit("/")[-1] for key in cache.keys()] == ["after", "before-2", "live"]  # noqa: SIM118
        assert told.count(("-before-1", False)) == 1
        running.cancel()

    run(story, cluster, observer=observed)


def test_lists_come_in_pages(cluster: Cluster, namespace: str) -> None:
    """Page by page gives the whole, in order."""

    async def story(api: HttpApi) -> None:
        for n in range(5):
            await api.create(kinds.POD, pause_pod(namespace, f"p{n}", cpu="1"), namespace)
        selection = Selection(namespace=namespace)
        page = await api.list_page(kinds.POD, selection, limit=2)
        assert len(page.items) == 2 and page.continue_token
        everything = await list_all(api, kinds.POD, selection, page_size=2)
        assert [pod.name for pod in everything] == [f"p{n}" for n in range(5)]

    run(story, cluster)


def test_writes_are_refused_as_the_errors_say(cluster: Cluster, namespace: str) -> None:
    """The typed errors that controllers decide by."""

    async def story(api: HttpApi) -> None:
        pod = await api.create(kinds.POD, pause_pod(namespace, "a", cpu="1"), namespace)
        with pytest.raises(AlreadyExists):
            await api.create(kinds.POD, pause_pod(namespace, "a", cpu="1"), namespace)
        with pytest.raises(Invalid):
            await api.create(kinds.POD, pause_pod(namespace, "B_", cpu="1"), namespace)
        with pytest.raises(NotFound):
            await api.get(kinds.POD, "nobody", namespace)
        with at_most(5.0):
            await api.patch(kinds.POD, "a", {"metadata": {"labels": {"x": "y"}}}, namespace)
        stale = {"metadata": {"resourceVersion": pod.metadata.resource_version, "labels": {"x": "z"}}}
        with pytest.raises(Conflict):
            await api.patch(kinds.POD, "a", stale, namespace)
        with pytest.raises(Conflict):
            await api.delete(kinds.POD, "a", namespace, DeleteOptions(Preconditions(uid="another")))
        await api.evict("a", namespace, Preconditions(uid=pod.uid))
        with pytest.raises(NotFound):
            await api.get(kinds.POD, "a", namespace)
        assert await api.server_version() == "1.36"

    run(story, cluster)


def test_an_eviction_against_a_budget_is_too_many_requests(cluster: Cluster, namespace: str) -> None:
    """429 comes at once, with the budget's words, and is not repeated by the client."""
    labels = {"app": "guarded"}
    body = pause_pod(namespace, "a", cpu="1")
    body["metadata"]["labels"] = labels
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard", "namespace": namespace},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": labels}},
    }

    async def story(api: HttpApi) -> None:
        await api.create(kinds.POD, body, namespace)
        await api.patch(
            kinds.POD,
            "a",
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
            namespace,
            subresource="status",
        )
        await api.create(kinds.PDB, budget, namespace)
        with pytest.raises(TooManyRequests):
            await api.evict("a", namespace)

    run(story, cluster)


def test_one_leader_at_a_time_and_a_released_lease_is_taken_over(cluster: Cluster, namespace: str) -> None:
    """The Lease that a real server stores, with its micro-second times."""

    async def story(api: HttpApi) -> None:
        leading: list[str] = []

        def elector(name: str) -> LeaderElector:
            return LeaderElector(api, "lease", namespace, name, CLOCK)

        async def lead(name: str) -> None:
            leading.append(name)
            await asyncio.Event().wait()

        first, second = elector("one"), elector("two")
        one = asyncio.create_task(first.run(lambda: lead("one"), lambda: None))
        await until(lambda: leading == ["one"])
        two = asyncio.create_task(second.run(lambda: lead("two"), lambda: None))
        await asyncio.sleep(3)
        assert leading == ["one"] and first.holds_lease() and not second.holds_lease()
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        await until(lambda: leading == ["one", "two"], timeout_s=10)
        two.cancel()
        await asyncio.gather(two, return_exceptions=True)
        lease = await api.get(kinds.LEASE, "lease", namespace)
        assert (lease.spec.holder_identity or "", lease.spec.lease_transitions) == ("", 1)

    run(story, cluster)


def test_events_are_written_and_counted(cluster: Cluster, namespace: str) -> None:
    """`kubectl describe` shows them under the object."""

    async def story(api: HttpApi) -> None:
        pod = await api.create(kinds.POD, pause_pod(namespace, "a", cpu="1"), namespace)
        recorder = EventRecorder(api, CLOCK, identity="test")
        target = reference_to(kinds.POD, pod)
        for _ in range(3):
            recorder.publish(target, "Warning", "FailedScheduling", "no room", window_s=0.0)
        recorder.publish(target, "Normal", "Nominated", "should schedule on nodeclaim/x")
        await recorder.flush()
        events = await list_all(api, kinds.EVENT, Selection(namespace, field_selector="source=karpenter"))
        assert sorted((event.reason, event.count) for event in events) == [("FailedScheduling", 3), ("Nominated", 1)]

    run(story, cluster)
    assert "no room" in cluster.kubectl("describe", "pod", "a", "-n", namespace)
