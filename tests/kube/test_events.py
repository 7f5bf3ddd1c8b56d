"""Events are said once, in bounds, in the background, and never disturb the work they report on."""

import asyncio

import pytest

from pykarpenter.api.nodes import ObjectReference
from pykarpenter.kube.errors import Forbidden, NotFound, ServerFault
from pykarpenter.kube.events import EventRecorder
from pykarpenter.kube.observer import IgnoreKube
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock

POD = ObjectReference(api_version="v1", kind="Pod", name="web-1", namespace="shop", uid="u1")
NODE = ObjectReference(api_version="v1", kind="Node", name="node-1", uid="u2")


class EventApi(IgnoreKube):
    def __init__(self):
        self.created = []
        self.counted = []
        self.failures = []
        self.expired = False
        self.dropped = []

    async def create(self, kind, body, namespace=""):
        if self.failures:
            raise self.failures.pop(0)
        assert namespace == body["metadata"]["namespace"]
        self.created.append(body)

    async def patch(self, kind, name, patch, namespace="", **_):
        if self.expired:
            raise NotFound(name)
        self.counted.append((name, patch["count"]))

    def event_dropped(self, reason):
        self.dropped.append(reason)


def recorded(story):
    """Run a story with a recorder on virtual time; returns the API it wrote to."""
    api = EventApi()

    async def main():
        await story(EventRecorder(api, running_clock(), identity="me", observer=api), api)
        await asyncio.sleep(60)

    run_virtual(main())
    return api


@pytest.mark.promise("API-8.3")
def test_an_event_carries_object_source_and_times():
    """kubectl describe finds an event by the object, people by its source."""

    async def story(recorder, api):
        recorder.publish(POD, "Normal", "Nominated", "Pod should schedule on nodeclaim/a")
        recorder.publish(NODE, "Warning", "FailedDraining", "waiting")

    api = recorded(story)
    first, second = api.created
    assert first["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "web-1",
        "namespace": "shop",
        "uid": "u1",
    }
    assert (first["reason"], first["type"], first["count"]) == ("Nominated", "Normal", 1)
    assert first["source"] == {"component": "karpenter"}
    assert first["firstTimestamp"] == "2026-01-01T00:00:00Z"
    assert first["metadata"]["name"].startswith("web-1.")
    assert first["metadata"]["namespace"] == "shop"
    assert second["metadata"]["namespace"] == "default"


@pytest.mark.promise("API-8.1")
def test_the_same_thing_is_said_once_per_window():
    """Loops find the same fact every few seconds; the two minutes are counted from the first time."""

    async def story(recorder, api):
        for _ in range(30):
            recorder.publish(
                POD, "Warning", "FailedScheduling", f"at {asyncio.get_running_loop().time()}", dedupe=("u1",)
            )
            await asyncio.sleep(10)

    api = recorded(story)
    assert [body["message"] for body in api.created] == ["at 0.0", "at 120.0", "at 240.0"]


@pytest.mark.promise("API-8.1")
def test_windows_are_kept_apart_by_reason_and_dedupe_values():
    """Another reason or another object is news."""

    async def story(recorder, api):
        recorder.publish(NODE, "Normal", "Unconsolidatable", "m", dedupe=("a",), window_s=900)
        recorder.publish(NODE, "Normal", "Unconsolidatable", "m2", dedupe=("b",), window_s=900)
        recorder.publish(NODE, "Normal", "DisruptionBlocked", "m", dedupe=("a",))
        recorder.publish(NODE, "Normal", "UNCONSOLIDATABLE", "m", dedupe=("a",))
        await asyncio.sleep(899)
        recorder.publish(NODE, "Normal", "Unconsolidatable", "m3", dedupe=("a",))

    api = recorded(story)
    assert [(b["reason"], b["message"]) for b in api.created] == [
        ("Unconsolidatable", "m"),
        ("Unconsolidatable", "m2"),
        ("DisruptionBlocked", "m"),
    ]


@pytest.mark.promise("API-8.2")
def test_nominations_are_held_to_5_a_second_with_a_burst_of_10():
    """Ten thousand pods placed at once must not become ten thousand writes."""

    async def story(recorder, api):
        for n in range(1000):
            target = ObjectReference(kind="Pod", name=f"p{n}", namespace="d", uid=str(n))
            recorder.publish(target, "Normal", "Nominated", "m")
        await asyncio.sleep(1)
        for n in range(1000):
            target = ObjectReference(kind="Pod", name=f"q{n}", namespace="d", uid=f"q{n}")
            recorder.publish(target, "Normal", "Nominated", "m")

    api = recorded(story)
    assert len(api.created) == 15
    assert len(api.dropped) == 1985


def test_what_each_pass_says_of_ten_thousand_machines_is_said_once_and_at_a_pace():
    """Events about machines that stay as they are must neither repeat every pass nor use up the client's budget."""

    async def story(recorder, api):
        targets = [ObjectReference(kind="Node", name=f"n{n}", uid=str(n)) for n in range(10_000)]
        for _ in range(110):
            for target in targets:
                recorder.publish(target, "Normal", "Unconsolidatable", "m", dedupe=(target.name,), window_s=9_000)
            await asyncio.sleep(10)
            assert len(api.created) <= 400 + 10.0 * asyncio.get_running_loop().time() + 1

    api = recorded(story)
    assert len(api.created) == 10_000 == len({body["involvedObject"]["name"] for body in api.created})
    assert api.dropped == []


def test_an_event_for_which_there_was_no_room_is_said_later():
    """What was not said must not count as said."""

    async def story(recorder, api):
        for _ in range(2):
            for number in range(1_500):
                target = ObjectReference(kind="Pod", name=f"p{number}", namespace="d", uid=str(number))
                recorder.publish(target, "Warning", "FailedScheduling", "m")
            await asyncio.sleep(60)

    assert len(recorded(story).created) == 1_500


def test_a_repeat_after_the_window_raises_the_count_of_the_first():
    """One object a minute for a stuck pod would fill etcd."""

    async def story(recorder, api):
        for _ in range(3):
            recorder.publish(POD, "Warning", "FailedScheduling", "no room")
            await asyncio.sleep(121)
        api.expired = True
        recorder.publish(POD, "Warning", "FailedScheduling", "no room")

    api = recorded(story)
    assert len(api.created) == 2
    name = api.created[0]["metadata"]["name"]
    assert api.counted == [(name, 2), (name, 3)]
    assert api.created[1]["metadata"]["name"] != name


def test_without_a_window_every_repeat_is_said_and_counted():
    """Publishing must not fail however short the window is."""

    async def story(recorder, api):
        for _ in range(3):
            recorder.publish(POD, "Warning", "FailedScheduling", "no room", window_s=0.0)
        await recorder.flush()

    api = recorded(story)
    assert len(api.created) == 1
    assert [count for _, count in api.counted] == [2, 3]


def test_publishing_never_waits_or_raises_whatever_the_server_says():
    """An event is never worth a delayed or failed decision."""

    async def story(recorder, api):
        api.failures = [Forbidden("namespace is being terminated"), ServerFault("x"), ServerFault("x")]
        before = asyncio.get_running_loop().time()
        recorder.publish(POD, "Normal", "A", "refused")
        recorder.publish(POD, "Normal", "B", "after two faults")
        assert asyncio.get_running_loop().time() == before
        assert api.created == []

    api = recorded(story)
    assert [b["reason"] for b in api.created] == ["B"]
    assert api.dropped == ["A"]


def test_a_flood_is_bounded_in_memory():
    """With the API server away, events pile up only so far."""

    async def story(recorder, api):
        for n in range(5000):
            recorder.publish(NODE, "Normal", "Flood", f"message {n}")

    api = recorded(story)
    assert len(api.created) == 1000
    assert len(api.dropped) == 4000


def test_s14_secrets_and_overlong_messages_are_cut():
    """Events are readable by anyone in the namespace, and the server refuses more than a kilobyte."""

    async def story(recorder, api):
        recorder.publish(POD, "Normal", "A", "failed with Authorization: Bearer abcdefghijkl.mnop")
        recorder.publish(POD, "Normal", "B", "ü" * 2000)

    api = recorded(story)
    assert "abcdefghijkl" not in api.created[0]["message"]
    assert len(api.created[1]["message"].encode()) <= 1024


def test_flush_waits_for_what_was_published():
    """At shutdown the last words are still said."""

    async def main():
        api = EventApi()
        recorder = EventRecorder(api, running_clock())
        recorder.publish(POD, "Normal", "A", "last words")
        await recorder.flush()
        assert len(api.created) == 1

    run_virtual(main())


@pytest.mark.promise("API-8.1")
def test_f38_what_was_said_is_forgotten_when_nothing_can_come_of_it_any_more():
    """Machines come and go for weeks: what was said of the gone ones must not stay in memory."""
    held = []

    async def story(recorder, api):
        for number in range(300):
            gone = ObjectReference(api_version="v1", kind="Node", name=f"node-{number}", uid=f"u{number}")
            recorder.publish(gone, "Normal", "Launched", "m", window_s=900.0 if number % 5 == 0 else 120.0)
            await asyncio.sleep(60)
            held.append((len(recorder._windows), len(recorder._said)))

    api = recorded(story)
    assert len(api.created) == 300
    # As many as are said within the longest window, and within the hour that a server keeps events.
    assert max(windows for windows, _ in held) <= 15
    assert max(said for _, said in held) <= 60


@pytest.mark.promise("API-8.1")
def test_f38_an_event_said_again_and_again_is_counted_on_for_longer_than_an_hour():
    """A server keeps an event for an hour after it was last written, not after it was first."""

    async def story(recorder, api):
        for _ in range(20):
            recorder.publish(NODE, "Warning", "FailedDraining", "waiting")
            await asyncio.sleep(1800)

    api = recorded(story)
    assert len(api.created) == 1
    assert [count for _, count in api.counted] == list(range(2, 21))
