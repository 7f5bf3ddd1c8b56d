"""Lists, pages and watches."""

import pytest

from pykarpenter.kube.errors import BadRequest, Expired, ServerFault
from pykarpenter.sim.store import ListRequest

from .world import World, pod_spec, seen


def test_a_watch_shows_every_change_after_its_version_in_order() -> None:
    """Nothing may be missed between a list and the watch that follows it."""
    world = World()
    world.create("configmaps", "before")
    version = str(world.store.rv)
    world.create("configmaps", "a")
    watch = world.watch("configmaps", resource_version=version)
    world.patch("configmaps", "a", {"data": {"k": "v"}})
    world.delete("configmaps", "before")
    assert seen(watch) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "before")]
    assert seen(watch) == []


def test_a_deleted_event_carries_the_version_of_the_deletion() -> None:
    """A watch resumed from it must not see the deletion again."""
    world = World()
    world.create("configmaps", "a")
    watch = world.watch("configmaps", resource_version=str(world.store.rv))
    world.delete("configmaps", "a")
    (event,) = watch.poll()
    assert event.entry.obj["metadata"]["resourceVersion"] == str(world.store.rv)


def test_a_watch_without_a_version_begins_with_what_is_there() -> None:
    """Synthetic ADDED events, then changes."""
    world = World()
    world.create("nodes", "b")
    world.create("nodes", "a")
    watch = world.watch("nodes")
    world.create("nodes", "c")
    assert seen(watch) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


def test_a_streaming_list_ends_with_its_bookmark() -> None:
    """The reader knows when it is in sync."""
    world = World()
    world.create("nodes", "a")
    events = world.watch("nodes", send_initial_events=True).poll()
    assert [event.type for event in events] == ["ADDED", "BOOKMARK"]
    assert events[-1].initial_events_end and events[-1].rv == world.store.rv


def test_a_compacted_version_is_expired() -> None:
    """410 is honest: continuing quietly would hide deletions."""
    world = World()
    world.create("configmaps", "a")
    version = str(world.store.rv)
    world.create("configmaps", "b")
    world.store.compact()
    with pytest.raises(Expired, match="too old resource version"):
        world.watch("configmaps", resource_version=version)
    world.watch("configmaps", resource_version=str(world.store.rv))


def test_a_watch_that_reads_too_slowly_is_expired() -> None:
    """History is bounded, and a reader that falls behind it is told so."""
    world = World(history_limit=8)
    watch = world.watch("configmaps", resource_version=str(world.store.rv))
    for index in range(20):
        world.create("configmaps", f"c{index}")
    with pytest.raises(Expired):
        watch.poll()


def test_an_unrelated_kind_does_not_push_history_out() -> None:
    """A busy kind must not expire the watches of a quiet one."""
    world = World(history_limit=8)
    version = str(world.store.rv)
    for index in range(50):
        world.create("configmaps", f"c{index}")
    world.create("nodes", "n")
    assert seen(world.watch("nodes", resource_version=version)) == [("ADDED", "n")]


def test_a_version_of_the_future_is_refused() -> None:
    """Another cluster's version must not be taken for ours."""
    world = World()
    with pytest.raises(ServerFault, match="Too large resource version"):
        world.watch("nodes", resource_version="99999")


def test_leaving_and_entering_a_selection_are_deletion_and_addition() -> None:
    """A watcher with a selector sees only its part of the world."""
    world = World()
    watch = world.watch("pods", field_selector="spec.nodeName=n", resource_version=str(world.store.rv))
    labelled = world.watch("pods", label_selector="app=web", resource_version=str(world.store.rv))
    world.create("pods", "p", spec=pod_spec(), metadata={"labels": {"app": "web"}})
    assert seen(watch) == []
    world.store.bind("p", "default", "n")
    assert seen(watch) == [("ADDED", "p")]
    world.patch("pods", "p", {"metadata": {"labels": {"app": "other"}}})
    assert seen(watch) == [("MODIFIED", "p")]
    assert seen(labelled) == [("ADDED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]


def test_a_closed_watch_is_forgotten() -> None:
    """Readers come and go for days."""
    world = World()
    rung = []
    watch = world.watch("nodes")
    watch.on_ready = lambda: rung.append(1)
    world.create("nodes", "a")
    watch.close()
    world.create("nodes", "b")
    assert rung == [1]


def test_pages_show_one_moment() -> None:
    """Objects that come and go between pages must not appear twice or hide others."""
    world = World()
    for name in "abcde":
        world.create("nodes", name)
    nodes = world.kind("nodes")
    first = world.store.list_page(nodes, ListRequest(limit=2))
    assert first.remaining == 3
    world.delete("nodes", "d")
    world.create("nodes", "bb")
    world.patch("nodes", "e", {"metadata": {"labels": {"new": "yes"}}})
    second = world.store.list_page(nodes, ListRequest(limit=2, continue_token=first.continue_token))
    third = world.store.list_page(nodes, ListRequest(limit=2, continue_token=second.continue_token))
    pages = [[entry.metadata["name"] for entry in page.entries] for page in (first, second, third)]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert "labels" not in third.entries[0].metadata and third.continue_token == ""
    assert first.rv == second.rv == third.rv


def test_a_continue_token_expires_with_history_and_offers_a_way_on() -> None:
    """410 on a page carries a token that continues on the present state."""
    world = World()
    for name in "abc":
        world.create("nodes", name)
    nodes = world.kind("nodes")
    first = world.store.list_page(nodes, ListRequest(limit=1))
    world.delete("nodes", "b")
    world.store.compact()
    with pytest.raises(Expired, match="continue parameter is too old") as refused:
        world.store.list_page(nodes, ListRequest(limit=1, continue_token=first.continue_token))
    on = world.store.list_page(nodes, ListRequest(continue_token=refused.value.details["continue"]))
    assert [entry.metadata["name"] for entry in on.entries] == ["c"]


def test_a_token_from_nowhere_is_refused() -> None:
    """Bad input gets an answer, not a traceback."""
    world = World()
    with pytest.raises(BadRequest, match="continue key is not valid"):
        world.store.list_page(world.kind("nodes"), ListRequest(continue_token="rubbish!"))


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("app=web", ["a"]),
        ("app==web", ["a"]),
        ("app!=web", ["b", "c"]),
        ("app in (web, db)", ["a", "b"]),
        ("app notin (web)", ["b", "c"]),
        ("app", ["a", "b"]),
        ("!app", ["c"]),
        ("app,tier=1", ["b"]),
        ("tier>0", ["b"]),
        ("tier<1", []),
    ],
)
def test_label_selectors_mean_what_kubernetes_says(selector: str, found: list[str]) -> None:
    """All forms that kubectl and controllers send."""
    world = World()
    world.create("nodes", "a", metadata={"labels": {"app": "web"}})
    world.create("nodes", "b", metadata={"labels": {"app": "db", "tier": "1"}})
    world.create("nodes", "c")
    assert world.names("nodes", label_selector=selector) == found


def test_field_selectors_pick_by_node_phase_and_name() -> None:
    """Drains list the pods of one node."""
    world = World()
    world.create("pods", "placed", spec=pod_spec(nodeName="n"))
    world.create("pods", "waiting", spec=pod_spec())
    assert world.names("pods", field_selector="spec.nodeName=n") == ["placed"]
    assert world.names("pods", field_selector="spec.nodeName=") == ["waiting"]
    assert world.names("pods", field_selector="status.phase=Pending,metadata.name!=placed") == ["waiting"]
    with pytest.raises(BadRequest, match=r"field label not supported: spec\.colour"):
        world.names("pods", field_selector="spec.colour=red")
