"""Finalizers, grace periods and owner references."""

import pytest

from pykarpenter.kube.errors import Conflict, Invalid, NotFound
from pykarpenter.sim.store import DeleteRequest

from .world import START, World, owned_by, pod_spec, seen, workload_spec


def test_an_object_without_finalizers_goes_at_once() -> None:
    """Nothing waits for it."""
    world = World()
    world.create("configmaps", "a")
    world.delete("configmaps", "a")
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        world.get("configmaps", "a")


def test_finalizers_hold_a_deleted_object_until_the_last_is_removed() -> None:
    """Controllers clean up between deletionTimestamp and the end."""
    world = World()
    world.create("nodes", "n", metadata={"finalizers": ["a/1", "b/2"]})
    world.delete("nodes", "n")
    meta = world.get("nodes", "n")["metadata"]
    assert meta["deletionTimestamp"] == "2027-01-15T08:00:00Z" and meta["deletionGracePeriodSeconds"] == 0
    world.patch("nodes", "n", {"metadata": {"finalizers": ["b/2"]}})
    watch = world.watch("nodes", resource_version=str(world.store.rv))
    world.patch("nodes", "n", {"metadata": {"finalizers": None}})
    assert seen(watch) == [("DELETED", "n")]
    assert world.names("nodes") == []


def test_no_finalizer_may_be_added_to_a_deleted_object() -> None:
    """A late finalizer would hold an object that others already count as gone."""
    world = World()
    world.create("nodes", "n", metadata={"finalizers": ["a/1"]})
    world.delete("nodes", "n")
    with pytest.raises(Invalid, match=r"metadata\.finalizers: Forbidden: no new finalizers can be added"):
        world.patch("nodes", "n", {"metadata": {"finalizers": ["a/1", "c/3"]}})


def test_an_update_cannot_take_back_a_deletion() -> None:
    """deletionTimestamp belongs to the server."""
    world = World()
    world.create("nodes", "n", metadata={"finalizers": ["a/1"]})
    world.delete("nodes", "n")
    world.patch("nodes", "n", {"metadata": {"deletionTimestamp": None}})
    assert "deletionTimestamp" in world.get("nodes", "n")["metadata"]


def test_preconditions_protect_a_successor_of_the_same_name() -> None:
    """Delete with a UID never hits another object."""
    world = World()
    world.create("nodes", "n")
    with pytest.raises(Conflict, match=r"the UID in the precondition \(other\) does not match"):
        world.delete("nodes", "n", DeleteRequest(uid="other"))
    with pytest.raises(Conflict, match="the ResourceVersion in the precondition"):
        world.delete("nodes", "n", DeleteRequest(resource_version="1"))
    assert world.names("nodes") == ["n"]


def test_a_pod_that_was_never_placed_goes_at_once() -> None:
    """No kubelet would ever finish its deletion."""
    world = World()
    world.create("pods", "p", spec=pod_spec())
    world.delete("pods", "p")
    assert world.names("pods") == []


def test_a_placed_pod_waits_for_its_kubelet() -> None:
    """The grace period runs on the node; the kubelet ends it with a delete of grace zero."""
    world = World()
    world.create("pods", "p", spec=pod_spec(nodeName="n", terminationGracePeriodSeconds=45))
    world.delete("pods", "p")
    meta = world.get("pods", "p")["metadata"]
    assert meta["deletionTimestamp"] == "2027-01-15T08:00:45Z" and meta["deletionGracePeriodSeconds"] == 45
    world.delete("pods", "p", DeleteRequest(grace_period_s=0))
    assert world.names("pods") == []


def test_a_grace_period_can_only_be_shortened() -> None:
    """A second delete must not give a pod more time than the first."""
    world = World()
    world.create("pods", "p", spec=pod_spec(nodeName="n"))
    world.delete("pods", "p", DeleteRequest(grace_period_s=100))
    world.delete("pods", "p", DeleteRequest(grace_period_s=200))
    assert world.get("pods", "p")["metadata"]["deletionGracePeriodSeconds"] == 100
    world.clock.time = START + 5
    world.delete("pods", "p", DeleteRequest(grace_period_s=20))
    meta = world.get("pods", "p")["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 20 and meta["deletionTimestamp"] == "2027-01-15T08:00:20Z"


def test_dependents_follow_their_owner() -> None:
    """Background collection through every level, also for objects that hold finalizers."""
    world = World()
    deployment = world.create("deployments", "web", spec=workload_spec())
    replica_set = world.create(
        "replicasets", "web-1", spec=workload_spec(), metadata={"ownerReferences": [owned_by(deployment)]}
    )
    world.create("pods", "web-1-a", spec=pod_spec(), metadata={"ownerReferences": [owned_by(replica_set)]})
    world.create(
        "configmaps", "held", metadata={"ownerReferences": [owned_by(deployment)], "finalizers": ["example.com/hold"]}
    )
    world.delete("deployments", "web")
    assert world.names("replicasets") == [] and world.names("pods") == []
    assert "deletionTimestamp" in world.get("configmaps", "held")["metadata"]


def test_a_dependent_stays_while_one_owner_is_left() -> None:
    """Only the reference to the lost owner goes."""
    world = World()
    first, second = world.create("configmaps", "first"), world.create("configmaps", "second")
    world.create("configmaps", "child", metadata={"ownerReferences": [owned_by(first), owned_by(second)]})
    world.delete("configmaps", "first")
    references = world.get("configmaps", "child")["metadata"]["ownerReferences"]
    assert [reference["name"] for reference in references] == ["second"]


def test_an_object_of_an_owner_that_is_gone_is_collected() -> None:
    """A controller that creates a child after its parent was deleted must not leave it behind."""
    world = World()
    owner = world.create("configmaps", "owner")
    world.delete("configmaps", "owner")
    world.create("configmaps", "late", metadata={"ownerReferences": [owned_by(owner)]})
    assert "late" not in world.names("configmaps")


def test_foreground_deletion_waits_for_blocking_dependents() -> None:
    """kubectl delete --cascade=foreground: the owner is seen to the end of what it owns."""
    world = World()
    owner = world.create("deployments", "web", spec=workload_spec())
    blocking = {"ownerReferences": [owned_by(owner, block=True)], "finalizers": ["example.com/hold"]}
    world.create("configmaps", "child", metadata=blocking)
    world.delete("deployments", "web", DeleteRequest(propagation="Foreground"))
    assert world.get("deployments", "web")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in world.get("configmaps", "child")["metadata"]
    world.patch("configmaps", "child", {"metadata": {"finalizers": None}})
    assert world.names("deployments") == []


def test_orphaning_leaves_the_dependents() -> None:
    """kubectl delete --cascade=orphan."""
    world = World()
    owner = world.create("deployments", "web", spec=workload_spec())
    world.create("replicasets", "web-1", spec=workload_spec(), metadata={"ownerReferences": [owned_by(owner)]})
    world.delete("deployments", "web", DeleteRequest(propagation="Orphan"))
    assert world.names("deployments") == []
    assert "ownerReferences" not in world.get("replicasets", "web-1")["metadata"]


def test_a_deleted_namespace_empties_itself() -> None:
    """Its content goes first, the namespace last."""
    world = World()
    world.create("namespaces", "team")
    world.create("configmaps", "a", "team")
    world.create("pods", "p", "team", spec=pod_spec())
    world.delete("namespaces", "team")
    assert "team" not in world.names("namespaces")
    assert world.names("configmaps", namespace="team") == [] and world.names("pods", namespace="team") == []


def test_a_held_object_holds_its_namespace() -> None:
    """A namespace is Terminating until the last finalizer inside it is gone."""
    world = World()
    world.create("namespaces", "team")
    world.create("configmaps", "held", "team", metadata={"finalizers": ["example.com/hold"]})
    world.delete("namespaces", "team")
    assert world.get("namespaces", "team")["status"]["phase"] == "Terminating"
    world.store.patch(world.kind("configmaps"), "held", {"metadata": {"finalizers": None}}, "team")
    assert "team" not in world.names("namespaces")
