"""The HTTP client: what goes over the wire, and what comes back as objects and errors."""

import asyncio
import itertools
import json

import pytest
from aiohttp import web

from pykarpenter import __version__
from pykarpenter.api.kinds import CRD, NODE_CLAIM, POD
from pykarpenter.kube.contract import DeleteOptions, PatchType, Preconditions, Selection
from pykarpenter.kube.credentials import TokenFile
from pykarpenter.kube.deadline import at_most
from pykarpenter.kube.errors import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    ServerFault,
    TooManyRequests,
)
from pykarpenter.kube.observer import IgnoreKube
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from tests.kube.http_server import ok, serving, status, stream


def pod_json(name, version="1", **spec):
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}


def line(event, obj):
    return json.dumps({"type": event, "object": obj}).encode() + b"\n"


async def collected(watch):
    return [event async for event in watch]


def test_requests_carry_who_we_are():
    """Audit logs and rate limits of servers go by the user agent."""

    async def main():
        async with serving(ok(pod_json("a"))) as (server, api):
            pod = await api.get(POD, "a", "default")
            assert pod.name == "a"
            asked = server.asked[0]
            assert asked["path"] == "/api/v1/namespaces/default/pods/a"
            assert asked["headers"]["User-Agent"] == f"karpenter/{__version__}"

    run_virtual(main())


def test_lists_come_in_pages_and_selections():
    """Big clusters are read 500 at a time, and only what was asked for."""
    page = {"kind": "PodList", "metadata": {"resourceVersion": "7", "continue": "t"}, "items": [pod_json("a")]}

    async def main():
        async with serving(ok(page)) as (server, api):
            selection = Selection(namespace="kube-system", label_selector="app=x", field_selector="spec.nodeName=n")
            found = await api.list_page(POD, selection, limit=500, continue_token="before")
            assert (found.resource_version, found.continue_token) == ("7", "t")
            assert [p.name for p in found.items] == ["a"]
            assert server.asked[0]["path"] == "/api/v1/namespaces/kube-system/pods"
            assert server.asked[0]["query"] == {
                "limit": "500",
                "continue": "before",
                "labelSelector": "app=x",
                "fieldSelector": "spec.nodeName=n",
            }

    run_virtual(main())


def test_watch_lines_survive_any_cut_into_chunks():
    """The network cuts where it likes: inside a line, inside a character, or several lines at once."""
    text = (
        line("ADDED", pod_json("ä-1", "8"))
        + line("MODIFIED", pod_json("b", "9"))
        + line("DELETED", pod_json("c", "10"))
    )

    async def main():
        for cuts in ([7], [30, 31, 32], list(range(1, len(text))), []):
            edges = [0, *cuts, len(text)]
            chunks = [text[a:b] for a, b in itertools.pairwise(edges)]
            async with serving(stream(*chunks)) as (server, api):
                events = await collected(api.watch(POD, resource_version="7", timeout_s=300))
            assert [(e.type, e.object.name, e.resource_version) for e in events] == [
                ("ADDED", "ä-1", "8"),
                ("MODIFIED", "b", "9"),
                ("DELETED", "c", "10"),
            ]
        assert server.asked[0]["query"] == {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "7",
            "timeoutSeconds": "300",
        }

    run_virtual(main())


def test_a_watch_line_of_megabytes_is_read():
    """Line readers with a limit fail on objects near etcd's size; a CRD can be that big."""
    big = {"metadata": {"name": "big", "resourceVersion": "3"}, "spec": {"text": "x" * 3_000_000}}

    async def main():
        async with serving(stream(line("ADDED", big))) as (_, api):
            (event,) = await collected(api.watch(CRD))
            assert event.object.name == "big"

    run_virtual(main())


def test_bookmarks_and_the_end_of_a_streaming_list_are_told():
    """The reflector resumes from bookmarks and is synced by the last of the initial events."""
    mark = {"kind": "Pod", "metadata": {"resourceVersion": "20"}}
    end = {"kind": "Pod", "metadata": {"resourceVersion": "21", "annotations": {"k8s.io/initial-events-end": "true"}}}

    async def main():
        chunks = line("ADDED", pod_json("a", "3")), line("BOOKMARK", mark), line("BOOKMARK", end)
        async with serving(stream(*chunks)) as (server, api):
            events = await collected(api.watch(POD, send_initial_events=True))
            assert [(e.type, e.resource_version, e.initial_events_end) for e in events] == [
                ("ADDED", "3", False),
                ("BOOKMARK", "20", False),
                ("BOOKMARK", "21", True),
            ]
            query = server.asked[0]["query"]
            assert (query["sendInitialEvents"], query["resourceVersionMatch"]) == ("true", "NotOlderThan")

    run_virtual(main())


@pytest.mark.parametrize("kind", [POD, CRD], ids=["typed-status", "metadata-only"])
def test_f16_410_inside_a_watch_is_expired(kind):
    """The error comes as an event of an open stream, not as a status code."""
    gone = {"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410}

    async def main():
        async with serving(stream(line("ADDED", pod_json("a", "8")), line("ERROR", gone))) as (_, api):
            seen = []
            with pytest.raises(Expired, match="too old"):
                async for event in api.watch(kind):
                    seen.append(event.object.name)
            assert seen == ["a"]

    run_virtual(main())


def test_f15_a_watch_without_a_byte_for_two_minutes_is_broken_off():
    """Half-open connections stay silent for ever; the transport has its own limit behind the reflector's."""

    async def main():
        async with serving(stream(line("ADDED", pod_json("a", "8")), 100_000)) as (_, api):
            seen = []
            with pytest.raises(ServerFault):
                async for event in api.watch(POD):
                    seen.append(event.object.name)
            assert seen == ["a"]
            assert 115 < asyncio.get_running_loop().time() < 130

    run_virtual(main())


def test_a_quiet_watch_outlives_every_ordinary_time_out():
    """The client library's default of five minutes would cut each watch."""

    async def main():
        chunks = [part for n in range(10) for part in (100, line("ADDED", pod_json(f"p{n}", str(n))))]
        async with serving(stream(*chunks)) as (_, api):
            assert len(await collected(api.watch(POD))) == 10
            assert asyncio.get_running_loop().time() >= 1000

    run_virtual(main())


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Expired),
        (422, "Invalid", Invalid),
        (500, "InternalError", ServerFault),
        (503, "", ServerFault),
    ],
)
def test_answers_become_typed_errors_with_the_servers_words(code, reason, error):
    """Controllers decide by type; people read the message."""

    async def main():
        async with serving(status(code, reason, "the server's words")) as (_, api):
            with pytest.raises(error, match="the server's words") as caught:
                await api.create(NODE_CLAIM, {"metadata": {"name": "a"}})
            assert caught.value.code == code

    run_virtual(main())


def test_f23_an_answer_that_is_no_status_is_a_server_fault():
    """Load balancers answer with web pages."""

    async def page(request):
        return web.Response(status=502, text="<html>Bad Gateway</html>")

    async def main():
        async with serving(page) as (_, api):
            with pytest.raises(ServerFault, match="Bad Gateway"):
                await api.get(POD, "a", "default")

    run_virtual(main())


def test_f23_an_unreachable_server_is_a_server_fault():
    """Refused connections say nothing about objects."""

    async def main():
        async with serving(ok({})) as (_, api):
            pass
        with pytest.raises(ServerFault):
            await api.get(POD, "a", "default")
        await api.close()

    run_virtual(main())


def test_f23_throttled_requests_are_repeated_as_the_server_asks():
    """429 with Retry-After means later, not no."""
    later = status(429, "TooManyRequests", "slow down", headers={"Retry-After": "4"})

    async def main():
        async with serving(later, later, ok(pod_json("a"))) as (server, api):
            assert (await api.get(POD, "a", "default")).name == "a"
            assert [round(asked["at"]) for asked in server.asked] == [0, 4, 8]

    run_virtual(main())


def test_f23_throttling_without_end_is_told():
    """Somebody has to know in the end; the wait the server wants is passed on."""
    later = status(429, "TooManyRequests", "slow down", headers={"Retry-After": "4"})
    much_later = status(429, "TooManyRequests", "slow down", headers={"Retry-After": "3600"})

    async def main():
        async with serving(later) as (server, api):
            with pytest.raises(TooManyRequests):
                await api.get(POD, "a", "default")
            assert len(server.asked) == 4
        async with serving(much_later) as (server, api):
            with pytest.raises(TooManyRequests) as caught:
                await api.get(POD, "a", "default")
            assert caught.value.retry_after_s == 3600
            assert len(server.asked) == 1

    run_virtual(main())


def test_a_refused_eviction_is_answered_at_once():
    """Its 429 is about a disruption budget; the drain decides when to ask again."""

    async def main():
        refused = status(429, "TooManyRequests", "violates the budget", headers={"Retry-After": "10"})
        async with serving(refused) as (server, api):
            with pytest.raises(TooManyRequests, match="budget"):
                await api.evict("web-1", "shop", Preconditions(uid="u1"))
            (asked,) = server.asked
            assert asked["path"] == "/api/v1/namespaces/shop/pods/web-1/eviction"
            assert asked["body"]["kind"] == "Eviction"
            assert asked["body"]["deleteOptions"] == {"preconditions": {"uid": "u1"}}

    run_virtual(main())


def test_writes_are_patches_deletions_and_bindings_never_whole_objects():
    """A subset type put back would erase every field it does not know."""

    async def main():
        async with serving(ok(pod_json("a"))) as (server, api):
            await api.patch(POD, "a", {"metadata": {"resourceVersion": "3"}}, "default", subresource="status")
            await api.patch(POD, "a", [{"op": "test"}], "default", patch_type=PatchType.JSON)
            await api.delete(
                POD, "a", "default", DeleteOptions(Preconditions("u", "3"), grace_period_s=0, propagation="Background")
            )
            await api.bind("a", "default", "node-1")
            merge, patch, delete, bind = server.asked
        assert merge["path"].endswith("/pods/a/status")
        assert merge["headers"]["Content-Type"] == "application/merge-patch+json"
        assert patch["headers"]["Content-Type"] == "application/json-patch+json"
        assert delete["method"] == "DELETE"
        assert delete["body"] == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u", "resourceVersion": "3"},
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Background",
        }
        assert bind["body"]["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
        assert not hasattr(api, "put") and not hasattr(api, "update")

    run_virtual(main())


def test_f20_a_write_under_a_deadline_is_bounded_on_both_sides():
    """A server that dawdles past the lease must drop the request too."""

    async def slow(request):
        await asyncio.sleep(3600)

    async def main():
        async with serving(slow) as (server, api):
            with pytest.raises(ServerFault), at_most(4.5):
                await api.delete(NODE_CLAIM, "a")
            assert asyncio.get_running_loop().time() < 5.5
            assert server.asked[0]["query"]["timeout"] == "4.500s"

    run_virtual(main())


def test_requests_keep_to_qps_and_burst():
    """A controller gone wild must not take the API server with it."""

    async def main():
        async with serving(ok(pod_json("a")), qps=10, burst=5) as (_, api):
            await asyncio.gather(*(api.get(POD, "a", "default") for _ in range(25)))
            assert asyncio.get_running_loop().time() == pytest.approx(2.0, abs=0.1)

    run_virtual(main())


def test_a_rotated_token_file_is_used_within_a_minute_and_at_once_after_401(tmp_path):
    """Projected tokens are replaced every hour; a client that keeps the first stops working then."""
    path = tmp_path / "token"
    path.write_text("first\n")

    async def main():
        credentials = TokenFile(path, running_clock())
        refuses = status(401, "Unauthorized")
        fine = ok(pod_json("a"))
        async with serving(fine, fine, fine, refuses, fine, credentials=credentials) as (server, api):
            await api.get(POD, "a", "default")
            path.write_text("second")
            await api.get(POD, "a", "default")
            await asyncio.sleep(61)
            await api.get(POD, "a", "default")
            path.write_text("third")
            await api.get(POD, "a", "default")
            assert [asked["headers"]["Authorization"] for asked in server.asked] == [
                "Bearer first",
                "Bearer first",
                "Bearer second",
                "Bearer second",
                "Bearer third",
            ]

    run_virtual(main())


class Observed(IgnoreKube):
    def __init__(self):
        self.bad = []
        self.requests = []
        self.skews = []

    def undecodable(self, kind):
        self.bad.append(kind)

    def request(self, verb, kind, subresource, code, seconds):
        self.requests.append((verb, kind, subresource, code))

    def clock_skew(self, seconds):
        self.skews.append(seconds)


def test_f39_one_bad_object_is_set_aside_and_the_rest_is_read():
    """S12: the others go on, and the bad one is known to exist."""
    bad = pod_json("bad")
    bad["spec"] = {"containers": "not a list"}
    page = {"metadata": {"resourceVersion": "7"}, "items": [pod_json("a"), bad, pod_json("b")]}
    observed = Observed()

    changed_bad = {**bad, "metadata": {**bad["metadata"], "resourceVersion": "9"}}
    watch = stream(line("MODIFIED", changed_bad), line("DELETED", bad))

    async def main():
        async with serving(ok(page), watch, observer=observed) as (_, api):
            found = await api.list_page(POD)
            assert [p.name for p in found.items] == ["a", "b"]
            assert found.quarantined == ("default/bad",)
            changed, deleted = await collected(api.watch(POD))
            assert (changed.type, changed.key, changed.resource_version) == ("MODIFIED", "default/bad", "9")
            assert changed.object is None
            assert (deleted.type, deleted.key) == ("DELETED", "default/bad")

    run_virtual(main())
    assert observed.bad == ["Pod", "Pod", "Pod"]


def test_every_request_is_counted_by_verb_kind_and_code():
    """client_go metrics are what operators alert on."""
    observed = Observed()

    async def main():
        async with serving(ok(pod_json("a")), status(404, "NotFound"), observer=observed) as (_, api):
            await api.get(POD, "a", "default")
            with pytest.raises(NotFound):
                await api.patch(NODE_CLAIM, "a", {}, subresource="status")

    run_virtual(main())
    assert observed.requests == [
        ("GET", "v1/Pod", "", "200"),
        ("PATCH", "karpenter.sh/v1/NodeClaim", "status", "404"),
    ]


def test_f40_the_difference_between_our_clock_and_the_servers_is_measured():
    """Nothing depends on it, but a clock that is minutes off should be seen."""
    observed = Observed()

    async def main():
        async with serving(ok(pod_json("a")), observer=observed) as (_, api):
            await api.get(POD, "a", "default")

    run_virtual(main())
    assert len(observed.skews) == 1
