"""The reflector: the cache follows the server through everything that happens to watches."""

import asyncio
import itertools
from collections import deque

from pykarpenter.kube.cache import Cache
from pykarpenter.kube.errors import Expired, Forbidden, ServerFault, TooManyRequests
from pykarpenter.kube.observer import IgnoreKube
from pykarpenter.kube.reflector import Reflector
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from tests.kube.scripted import FOREVER, POD, Page, ScriptedApi, added, bookmark, deleted, modified, pod


class Observed(IgnoreKube):
    def __init__(self):
        self.restarts = []
        self.anomalies = []
        self.lags = []

    def watch_restarted(self, kind, reason):
        self.restarts.append(reason)

    def event_anomaly(self, kind, anomaly):
        self.anomalies.append(anomaly)

    def watch_lag(self, kind, seconds):
        self.lags.append(seconds)


class Followed:
    """Runs a reflector over a script for some virtual seconds and keeps what it told."""

    def __init__(self, api, seconds=10.0, handlers=()):
        self.told = []
        self.observed = Observed()
        self.cache = Cache()
        self.synced_at = None

        def hear(change):
            verb = "gone" if change.new is None else "new" if change.old is None else "changed"
            obj = change.new or change.old
            self.told.append((verb, obj.name, obj.metadata.resource_version, change.initial))

        async def main():
            reflector = Reflector(
                api,
                POD,
                self.cache,
                clock=running_clock(),
                handlers=[*handlers, hear],
                observer=self.observed,
                chance=lambda: 0.5,
            )
            running = asyncio.create_task(reflector.run())
            watcher = asyncio.create_task(self._note_sync(reflector))
            await asyncio.sleep(seconds)
            running.cancel()
            watcher.cancel()

        run_virtual(main())

    async def _note_sync(self, reflector):
        await reflector.wait_synced()
        self.synced_at = asyncio.get_running_loop().time()


def script(lists=(), watches=(), **kwargs):
    return ScriptedApi(deque(lists), deque(watches), **kwargs)


def test_a_list_in_pages_then_a_watch_from_its_version():
    """The ordinary start: everything found is initial, everything after is news."""
    api = script(
        [Page([pod("a", "3")], "7", "token"), Page([pod("b", "4")], "7")],
        [[added(pod("c", "8")), modified(pod("a", "9")), deleted(pod("b", "4"), "10"), FOREVER]],
    )
    run = Followed(api)
    assert run.told == [
        ("new", "a", "3", True),
        ("new", "b", "4", True),
        ("new", "c", "8", False),
        ("changed", "a", "9", False),
        ("gone", "b", "4", False),
    ]
    assert [p.name for p in run.cache.values()] == ["a", "c"]
    assert run.cache.synced
    assert [call[2:] for call in api.asked("list")] == [(500, ""), (500, "token")]
    assert [call[2:] for call in api.asked("watch")] == [("", True), ("7", False)]


def test_a_streaming_list_is_used_where_it_is_served():
    """One request instead of many pages, and the same stream goes on as the watch."""
    api = script(
        watches=[
            [added(pod("a", "3")), added(pod("b", "4")), 2, bookmark("9", end=True), modified(pod("a", "10")), FOREVER]
        ],
        streams_lists=True,
    )
    run = Followed(api)
    assert run.told == [("new", "a", "3", True), ("new", "b", "4", True), ("changed", "a", "10", False)]
    assert run.synced_at == 2
    assert api.asked("list") == []
    assert len(api.asked("watch")) == 1


def test_a_stream_that_never_ends_its_initial_events_falls_back_to_pages():
    """Stores without progress notification stream the objects but never the end."""
    api = script([Page([pod("a", "3")], "7")], [[added(pod("a", "3")), FOREVER]], streams_lists=True)
    run = Followed(api, seconds=100)
    assert run.cache.synced
    assert run.told == [("new", "a", "3", True)]


def test_nothing_is_synced_before_the_whole_list_is_in():
    """S12: half a list read as a whole one would show running pods as absent."""
    api = script([Page([pod("a", "3")], "7", "token"), ServerFault("down")])
    run = Followed(api, seconds=0.1)
    assert not run.cache.synced
    assert run.told == []


def test_a_closed_watch_resumes_from_the_last_version_seen_bookmarks_included():
    """Servers close watches every few minutes; nothing is listed again for it."""
    api = script([Page([], "7")], [[3, added(pod("a", "8")), bookmark("20")], [FOREVER]])
    Followed(api, seconds=30)
    assert [call[1:3] for call in api.asked("watch")[1:]] == [(0.0, "7"), (3.0, "20")]
    assert len(api.asked("list")) == 1


def test_f16_410_lists_anew_and_tells_what_was_deleted_meanwhile():
    """A delete that was missed would leave a pod, a node or a claim in our state for good."""
    api = script(
        [
            Page([pod("a", "3"), pod("b", "4"), pod("c", "5")], "7"),
            Page([pod("c", "5"), pod("b", "30"), pod("d", "31")], "40"),
        ],
        [[Expired("too old resource version")], [FOREVER]],
    )
    run = Followed(api)
    assert run.told[3:] == [("gone", "a", "3", False), ("changed", "b", "30", False), ("new", "d", "31", False)]
    assert api.asked("watch")[-1][2] == "40"
    assert run.observed.restarts == ["expired"]


def test_f16_an_object_recreated_under_its_name_is_a_deletion_and_a_creation():
    """Taking the new one for the old would carry over marks and nominations that are not its own."""
    api = script(
        [Page([pod("a", "3", uid="one")], "7"), Page([pod("a", "30", uid="two")], "40")],
        [[Expired("gone")], [FOREVER]],
    )
    run = Followed(api)
    assert run.told[1:] == [("gone", "a", "3", False), ("new", "a", "30", False)]


def test_f16_history_that_expires_again_and_again_is_not_listed_in_a_hot_loop():
    """A server that compacts faster than we list must not be finished off by us."""
    api = script([Page([], str(n)) for n in range(100)], [[Expired("gone")] for _ in range(100)])
    Followed(api, seconds=60)
    assert len(api.asked("list")) < 10


def test_f15_a_silent_watch_is_dropped_and_resumed_within_90_seconds():
    """A socket that stays open but says nothing looks healthy; only the missing bookmarks show it."""
    api = script([Page([], "7")], [[added(pod("a", "8")), FOREVER], [added(pod("b", "9")), FOREVER]])
    run = Followed(api, seconds=90)
    assert [name for _, name, _, _ in run.told] == ["a", "b"]
    assert run.observed.restarts == ["silent"]
    assert api.asked("watch")[-1][1:3] == (75.0, "8")


def test_f15_bookmarks_alone_keep_a_quiet_watch_alive():
    """Kinds in which nothing happens must not be reconnected every minute."""
    api = script([Page([], "7")], [[step for n in range(20) for step in (60, bookmark(str(n + 8)))] + [FOREVER]])
    run = Followed(api, seconds=1200)
    assert run.observed.restarts == []
    assert len(api.asked("watch")) == 2


def test_f15_a_watch_that_is_always_silent_is_resumed_without_growing_waits():
    """Back-off is for failures; a quiet kind behind a proxy without bookmarks must not go blind between watches."""
    api = script([Page([], "7")])
    Followed(api, seconds=1000)
    times = [call[1] for call in api.asked("watch")[1:]]
    assert times == [75.0 * n for n in range(len(times))]


def test_f23_an_outage_keeps_the_cache_and_waits_longer_each_time():
    """S12: an unreachable server says nothing about its objects, and must not be hammered when it comes back."""
    api = script([Page([pod("a", "3")], "7")], [[ServerFault("down")] for _ in range(12)])
    run = Followed(api, seconds=300)
    assert run.told == [("new", "a", "3", True)]
    assert [p.name for p in run.cache.values()] == ["a"]
    times = [call[1] for call in api.asked("watch")[1:]]
    waits = [round(b - a, 2) for a, b in itertools.pairwise(times)]
    assert waits[:7] == [0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 22.5]
    assert max(waits[:-1]) <= 30


def test_f23_a_throttled_list_waits_as_long_as_the_server_asks():
    """429 carries Retry-After; ignoring it makes the overload worse."""
    throttled = TooManyRequests("slow down")
    throttled.retry_after_s = 17.0
    api = script([throttled, Page([], "7")])
    run = Followed(api, seconds=60)
    assert [call[1] for call in api.asked("list")] == [0.0, 17.0]
    assert run.synced_at == 17.0


def test_f23_pages_that_expire_are_listed_from_the_first():
    """A continue token lives five minutes; a slow reader starts over instead of mixing two versions."""
    api = script(
        [Page([pod("a", "3")], "7", "t1"), Expired("continue"), Page([pod("b", "4")], "9", "t2"), Page([], "9")]
    )
    run = Followed(api, seconds=1)
    assert run.told == [("new", "b", "4", True)]


def test_f24_repeated_and_older_events_change_nothing():
    """After a resume the server may say things twice; going back in time would undo what is known."""
    api = script(
        [Page([pod("a", "5")], "7")],
        [
            [
                added(pod("b", "8")),
                added(pod("b", "8")),
                modified(pod("a", "4")),
                modified(pod("a", "9")),
                deleted(pod("zz", "3"), "10"),
                FOREVER,
            ]
        ],
    )
    run = Followed(api)
    assert run.told[1:] == [("new", "b", "8", False), ("changed", "a", "9", False)]
    assert run.observed.anomalies == ["repeated", "repeated", "deleted-unknown"]


def test_f24_a_change_of_an_unknown_object_is_taken_as_its_creation():
    """Level-triggered: the newest state counts, whichever event brought it."""
    run = Followed(script([Page([], "7")], [[modified(pod("a", "8")), FOREVER]]))
    assert run.told == [("new", "a", "8", False)]


def test_f39_a_handler_that_raises_starves_neither_cache_nor_the_other_handlers():
    """A defect in one listener must not blind the rest."""

    def broken(change):
        raise KeyError("defect")

    run = Followed(script([Page([pod("a", "3")], "7")]), handlers=[broken])
    assert run.told == [("new", "a", "3", True)]
    assert run.observed.anomalies == ["handler-failed"]


def test_s12_an_object_that_cannot_be_decoded_keeps_its_last_good_state():
    """It exists; reading it as deleted would make its node look empty."""
    api = script(
        [Page([pod("a", "3"), pod("b", "4")], "7"), Page([pod("a", "3")], "40", quarantined=("default/b",))],
        [[Expired("gone")], [FOREVER]],
    )
    run = Followed(api)
    assert [p.name for p in run.cache.values()] == ["a", "b"]


def test_f13_watch_lag_is_measured_on_new_objects():
    """A watch that lags shows in the metrics before it does harm."""
    late = pod("a", "8", created="2026-01-01T00:00:00Z")
    run = Followed(script([Page([], "7")], [[60, added(late), FOREVER]]), seconds=65)
    assert run.observed.lags == [60.0]


def test_a_restored_server_with_an_older_history_is_listed_anew():
    """After a restore our version lies in the server's future, and no watch from it would ever start."""
    api = script(
        [Page([pod("a", "900")], "1000"), Page([pod("a", "20")], "30")],
        [[ServerFault("Timeout: Too large resource version: 1000, current: 30")], [FOREVER]],
    )
    run = Followed(api)
    assert run.told[1:] == [("changed", "a", "20", False)]


def test_a_forbidden_kind_is_tried_again_and_never_synced():
    """Missing permission is a reason to wait and say so, not a reason to act on an empty cache."""
    run = Followed(script([Forbidden("pods is forbidden")] * 3 + [Page([], "7")]), seconds=2)
    assert not run.cache.synced
    run = Followed(script([Forbidden("pods is forbidden")] * 3 + [Page([], "7")]), seconds=20)
    assert run.cache.synced


def test_indexes_follow_every_change():
    """Pods by node are asked for constantly; a stale index would show pods on nodes they left."""
    cache = Cache(indexes={"node": lambda p: [p.spec.node_name] if p.spec.node_name else []})
    cache.put("default/a", pod("a", "1"))
    cache.put("default/b", pod("b", "1", node="n1"))
    cache.put("default/a", pod("a", "2", node="n1"))
    assert [p.name for p in cache.index("node", "n1")] == ["a", "b"]
    cache.put("default/b", pod("b", "2", node="n2"))
    assert [p.name for p in cache.index("node", "n1")] == ["a"]
    cache.remove("default/a")
    assert cache.index("node", "n1") == []
    cache.add_index("name", lambda p: [p.name])
    assert [p.name for p in cache.index("name", "b")] == ["b"]


def test_f48_a_burst_of_events_lets_others_run_in_between():
    """Ten thousand buffered changes handled in one go would hold up the lease."""
    ran_after = []

    async def main():
        api = script([Page([], "7")], [[*(added(pod(f"p{n:05d}", str(n + 8))) for n in range(1000)), FOREVER]])
        cache = Cache()
        reflector = Reflector(api, POD, cache, clock=running_clock())
        running = asyncio.create_task(reflector.run())
        while len(cache) < 1000:
            await asyncio.sleep(0)
            ran_after.append(len(cache))
        running.cancel()

    run_virtual(main())
    assert max(b - a for a, b in itertools.pairwise(ran_after)) <= 200


def test_a_kind_that_cannot_be_listed_does_not_keep_the_collector_off():
    """A missing permission would otherwise end in a process that only grows."""
    paused = []

    class Pause:
        def __enter__(self):
            paused.append("off")

        def __exit__(self, *_):
            paused.append("on")

    async def main():
        api = script([Forbidden("no")] * 50)
        running = asyncio.create_task(Reflector(api, POD, Cache(), clock=running_clock(), garbage=Pause()).run())
        await asyncio.sleep(1)
        assert paused == ["off", "on"]
        running.cancel()

    run_virtual(main())
