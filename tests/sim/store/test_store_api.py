"""The store behind the KubeApi contract: decoding, delivery, faults."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pykarpenter.api.kinds import CONFIG_MAP, NODE, NODE_POOL, POD
from pykarpenter.kube.contract import DeleteOptions, Preconditions, Selection, WatchEvent, list_all
from pykarpenter.kube.errors import ApiError, Conflict, NotFound, ServerFault
from pykarpenter.sim.api import Middleware, Request, StoreApi
from pykarpenter.sim.store import Store

from .world import HandClock, pod_spec


def make_api(*middleware: Middleware) -> StoreApi:
    return StoreApi(Store(HandClock()), client="test", middleware=middleware)


async def test_objects_come_back_as_wire_types() -> None:
    """Controllers never see raw JSON."""
    api = make_api()
    made = await api.create(POD, {"metadata": {"name": "p"}, "spec": pod_spec(nodeName="n")}, "default")
    assert (made.name, made.namespace, made.spec.node_name) == ("p", "default", "n")
    assert (await api.get(POD, "p", "default")).uid == made.uid


async def test_one_version_is_decoded_once_for_all_readers() -> None:
    """Ten watchers of ten thousand pods must not decode a hundred thousand times."""
    api = make_api()
    await api.create(NODE, {"metadata": {"name": "n"}})
    assert await api.get(NODE, "n") is (await api.list_page(NODE)).items[0]


async def test_a_kind_that_is_not_served_is_not_found() -> None:
    """Without its CRD there are no NodePools."""
    with pytest.raises(NotFound, match="could not find the requested resource"):
        await make_api().list_page(NODE_POOL)


async def test_lists_page_and_select() -> None:
    """The contract's own helper walks all pages."""
    api = make_api()
    for index in range(7):
        await api.create(CONFIG_MAP, {"metadata": {"name": f"c{index}", "labels": {"odd": str(index % 2)}}}, "default")
    found = await list_all(api, CONFIG_MAP, Selection("default", "odd=1"), page_size=2)
    assert [item.name for item in found] == ["c1", "c3", "c5"]


async def test_deletes_carry_preconditions() -> None:
    """The contract's options reach the store."""
    api = make_api()
    await api.create(NODE, {"metadata": {"name": "n"}})
    with pytest.raises(Conflict):
        await api.delete(NODE, "n", options=DeleteOptions(Preconditions(uid="other")))
    await api.delete(NODE, "n")
    with pytest.raises(NotFound):
        await api.get(NODE, "n")


async def test_a_watch_delivers_while_others_write() -> None:
    """A waiting reader is woken by the write."""
    api = make_api()
    events: list[tuple[str, str]] = []

    async def read() -> None:
        async for event in api.watch(NODE, send_initial_events=True):
            events.append((event.type, event.object.name if event.object else ""))
            if event.type == "DELETED":
                return

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    await api.create(NODE, {"metadata": {"name": "n"}})
    await api.delete(NODE, "n")
    await asyncio.wait_for(reader, 5)
    assert events == [("BOOKMARK", ""), ("ADDED", "n"), ("DELETED", "n")]


async def test_a_watch_ends_after_its_timeout() -> None:
    """Servers close watches; clients resume them."""
    api = make_api()
    await api.create(NODE, {"metadata": {"name": "n"}})
    events = [event async for event in api.watch(NODE, timeout_s=0.01)]
    assert [event.type for event in events] == ["ADDED"]
    assert api.store.table("", "nodes").watches == {}


class _Flaky(Middleware):
    def __init__(self, when: str) -> None:
        self.when = when
        self.seen: list[tuple[str, str, str]] = []

    async def before(self, request: Request) -> None:
        self.seen.append((request.client, request.verb, request.name))
        if self.when == "before" and request.verb == "create":
            raise ServerFault("connection refused")

    async def after(self, request: Request, error: ApiError | None) -> None:
        if self.when == "after" and request.verb == "create":
            raise ServerFault("reply lost")

    async def on_event(self, request: Request, event: WatchEvent[Any]) -> Sequence[WatchEvent[Any]]:
        return (event, event) if self.when == "twice" else (event,)


@pytest.mark.parametrize(("when", "stored"), [("before", 0), ("after", 1)])
async def test_middleware_can_refuse_a_write_or_lose_its_reply(when: str, stored: int) -> None:
    """The two faults differ in what happened, and the caller cannot tell."""
    layer = _Flaky(when)
    api = make_api(layer)
    with pytest.raises(ServerFault):
        await api.create(NODE, {"metadata": {"name": "n"}})
    assert len((await api.list_page(NODE)).items) == stored
    assert layer.seen == [("test", "create", "n"), ("test", "list", "")]


async def test_middleware_can_repeat_events() -> None:
    """A duplicated delivery is one of the faults to survive."""
    api = make_api(_Flaky("twice"))
    await api.create(NODE, {"metadata": {"name": "n"}})
    events = [event async for event in api.watch(NODE, timeout_s=0.01)]
    assert [event.type for event in events] == ["ADDED", "ADDED"]
