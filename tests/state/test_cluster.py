"""The cluster state as a whole: snapshots, nominations, what is missing, what consolidation should look at again."""

from __future__ import annotations

import msgspec
import pytest

from pykarpenter.api.workloads import DaemonSet

from .world import claim, cluster, daemon_pod, delete, node, observe, pod, pool


def test_snapshot_holds_pods_without_a_node_in_order() -> None:
    state = cluster(pod("b"), pod("a"), pod("bound", "n1"), pod("done", phase="Succeeded"))
    assert [found.name for found in state.snapshot(0.0).pods] == ["a", "b"]


def test_snapshot_never_changes_after_it_was_taken() -> None:
    """Decisions run in a thread while events come in."""
    daemon_set = msgspec.convert({"metadata": {"name": "agent", "namespace": "kube-system"}}, DaemonSet)
    state = cluster(pool(), daemon_set, node("n1"), pod("p1"))
    taken = state.snapshot(1.0)
    types = taken.instance_types
    observe(state, pool("second"), node("n2"), pod("p2"), pod("p1", "n1"))
    delete(state, daemon_set)
    state.set_instance_types("pool", ())
    assert (len(taken.node_pools), len(taken.nodes), len(taken.pods), len(taken.daemon_sets)) == (1, 1, 1, 1)
    assert taken.nodes[0].pods == () and dict(types) == {}
    later = state.snapshot(2.0)
    assert (len(later.node_pools), len(later.nodes), len(later.pods), len(later.daemon_sets)) == (2, 2, 1, 0)


@pytest.mark.promise("API-5.8")
def test_daemon_set_is_represented_by_its_newest_live_pod() -> None:
    state = cluster(
        daemon_pod("old", "n1", "2026-01-01T00:00:00Z"),
        daemon_pod("new", "n2", "2026-01-02T00:00:00Z"),
        daemon_pod("going", "n3", "2026-01-03T00:00:00Z", deletionTimestamp="2026-01-04T00:00:00Z"),
    )
    assert state.snapshot(0.0).daemon_pods["ds"].name == "new"
    delete(state, daemon_pod("new", "n2", "2026-01-02T00:00:00Z"))
    assert state.snapshot(0.0).daemon_pods["ds"].name == "old"


@pytest.mark.promise("API-5.9")
def test_nomination_is_extended_never_shortened_and_ends() -> None:
    state = cluster(claim("c1", provider_id="kwok://n1"))
    state.nominate("c1", 20.0)
    state.nominate("c1", 15.0)
    assert state.views()[0].nominated_until == 20.0
    observe(state, node("n1", pool="pool"))
    assert state.snapshot(10.0).nodes[0].nominated_until == 20.0, "the Node's appearance does not end it"
    assert state.snapshot(20.0).nodes[0].nominated_until == 0.0


@pytest.mark.promise("API-5.10")
def test_synced_means_no_claim_without_a_machine_and_nothing_unseen() -> None:
    state = cluster(claim("c1"), node("n1"))
    assert not state.is_synced() and state.unlaunched_claims() == ["c1"]
    assert state.missing(["c1", "c2"], ["n1", "n2"]) == ["nodeclaim/c2", "node/n2"]
    observe(state, claim("c1", provider_id="kwok://c1"))
    assert state.is_synced()


@pytest.mark.promise("API-5.11")
def test_consolidation_looks_again_when_something_it_depends_on_changed() -> None:
    made = claim("c1", provider_id="kwok://n1")
    state = cluster(pool(), made, node("n1", pool="pool", stage="registered"))
    state.views()

    def changed() -> bool:
        nonlocal before
        state.views()
        now = state.consolidation_revision
        result, before = now != before, now
        return result

    before = state.consolidation_revision
    observe(state, pod("p1"))
    assert not changed(), "a pending pod alone changes nothing"
    observe(state, pod("p1", "n1"))
    assert changed(), "a pod was bound"
    observe(state, pod("p1", "n1", phase="Running"))
    assert not changed()
    delete(state, pod("p1", "n1"))
    assert changed(), "a pod left"
    observe(state, node("n1", pool="pool"))
    assert changed(), "a node became initialized"
    state.mark_for_deletion("kwok://n1")
    assert changed()
    observe(state, pool())
    assert not changed()
    observe(state, pool(cpu="10"))
    assert changed(), "the pool's spec changed"
    observe(state, node("n2", pool=""))
    assert changed(), "a machine was seen for the first time"
    observe(state, node("n2", pool=""))
    assert not changed()
    delete(state, made)
    assert changed(), "a claim went"
    state.mark_unconsolidated()
    assert changed()


def test_repeated_deliveries_change_nothing() -> None:
    """F24: a watch that resumes may deliver an event twice."""
    once = cluster(node("n1"), pod("p1", "n1"))
    twice = cluster(node("n1"), pod("p1", "n1"), node("n1"), pod("p1", "n1"))
    delete(twice, pod("ghost", "n1"), node("ghost"), claim("ghost"))
    assert [(v.name, len(v.pods)) for v in once.views()] == [(v.name, len(v.pods)) for v in twice.views()]


def test_buffer_pods_are_in_the_snapshot_and_counted_where_they_landed() -> None:
    state = cluster(node("n1"))
    state.set_buffer_pods("default/spare", (pod("capacity-buffer-spare-1"),))
    state.set_buffer_placements({"n1": 1})
    taken = state.snapshot(0.0)
    assert [found.name for found in taken.buffer_pods] == ["capacity-buffer-spare-1"]
    assert taken.nodes[0].buffer_pods == 1
    state.set_buffer_pods("default/spare", ())
    state.set_buffer_placements({})
    assert state.snapshot(0.0).buffer_pods == () and state.views()[0].buffer_pods == 0


@pytest.mark.promise("DIS-3.1.8")
def test_ended_pod_of_a_stateful_set_that_is_being_deleted_comes_back() -> None:
    """It uses nothing where it is, but its successor of the same name needs room when the machine goes."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": True}
    state = cluster(node("n1"))

    def seen() -> tuple[list[str], list[str]]:
        view = state.view_of_node("n1")
        assert view is not None
        return [item.name for item in view.pods], [item.name for item in view.returning]

    observe(state, pod("db-0", "n1", phase="Running", ownerReferences=[owner]))
    assert seen() == (["db-0"], [])
    observe(state, pod("db-0", "n1", phase="Failed", ownerReferences=[owner]))
    assert seen() == ([], []), "it ended, and nothing says that it will be made anew"
    leaving = {"ownerReferences": [owner], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    ended = pod("db-0", "n1", phase="Failed", **leaving)
    observe(state, ended)
    assert seen() == ([], ["db-0"])
    observe(state, pod("job", "n1", phase="Failed", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert seen() == ([], ["db-0"]), "nobody makes that one anew"
    delete(state, ended)
    assert seen() == ([], [])
    observe(state, ended)
    observe(state, pod("db-0", uid="second", ownerReferences=[owner]))
    assert seen() == ([], []), "its successor waits for a place"
