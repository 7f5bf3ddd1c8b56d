"""Creating, changing and locking objects."""

import pytest

from pykarpenter.kube.contract import PatchType
from pykarpenter.kube.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound
from pykarpenter.sim.store import Store, WriteOptions

from .world import HandClock, World, pod_spec, workload_spec


def test_one_sequence_numbers_every_write() -> None:
    """Clients compare versions of different kinds, so they come from one counter."""
    world = World()
    first = world.create("configmaps", "a")
    second = world.create("nodes", "n")
    third = world.patch("configmaps", "a", {"data": {"k": "v"}})
    assert [second.rv - first.rv, third.rv - second.rv] == [1, 1]
    assert third.obj["metadata"]["resourceVersion"] == str(third.rv)


def test_the_server_sets_identity_and_time() -> None:
    """A client cannot choose its UID, creation time or generation."""
    world = World()
    made = world.create(
        "deployments", "web", metadata={"uid": "mine", "creationTimestamp": None, "generation": 9}, spec=workload_spec()
    )
    meta = made.obj["metadata"]
    assert meta["uid"] != "mine" and len(meta["uid"]) == 36
    assert meta["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert meta["generation"] == 1
    assert made.obj["apiVersion"] == "apps/v1" and made.obj["kind"] == "Deployment"


def test_equal_seeds_give_equal_identities() -> None:
    """A run can be repeated only if UIDs and generated names come from the seed."""
    made = []
    for _ in range(2):
        store = Store(HandClock(), seed=7)
        body = {"metadata": {"generateName": "web-"}}
        made.append(store.create(store.resource("", "configmaps"), body, "default").obj)
    assert made[0] == made[1]
    assert made[0]["metadata"]["name"].startswith("web-") and len(made[0]["metadata"]["name"]) == 9


def test_a_name_is_taken_once() -> None:
    """A retried create must learn that the first one happened."""
    world = World()
    world.create("configmaps", "a")
    with pytest.raises(AlreadyExists, match='configmaps "a" already exists'):
        world.create("configmaps", "a")


def test_callers_cannot_change_what_is_stored() -> None:
    """The store keeps its own copy of what it was given."""
    world = World()
    data = {"k": "v"}
    world.create("configmaps", "a", data=data)
    data["k"] = "changed"
    assert world.get("configmaps", "a")["data"] == {"k": "v"}


def test_a_stale_version_is_a_conflict() -> None:
    """Optimistic locking: the second of two writers from the same version loses."""
    world = World()
    made = world.create("configmaps", "a")
    version = made.obj["metadata"]["resourceVersion"]
    world.patch("configmaps", "a", {"metadata": {"resourceVersion": version}, "data": {"by": "first"}})
    with pytest.raises(Conflict, match="the object has been modified; please apply your changes to the latest version"):
        world.patch("configmaps", "a", {"metadata": {"resourceVersion": version}, "data": {"by": "second"}})
    with pytest.raises(Conflict):
        world.store.update(world.kind("configmaps"), "a", made.obj, "default")
    assert world.get("configmaps", "a")["data"] == {"by": "first"}


def test_another_objects_uid_is_refused() -> None:
    """A patch or an update meant for an earlier object of the same name must not hit its successor."""
    world = World()
    world.create("configmaps", "a")
    with pytest.raises(Invalid, match=r"metadata\.uid: Invalid value: .*: field is immutable"):
        world.patch("configmaps", "a", {"metadata": {"uid": "other"}})
    with pytest.raises(Conflict, match="Precondition failed: UID in precondition: other"):
        world.store.update(world.kind("configmaps"), "a", {"metadata": {"name": "a", "uid": "other"}}, "default")


def test_a_write_that_changes_nothing_makes_no_version() -> None:
    """Kubernetes does not store an equal object again; controllers that patch in loops rely on it."""
    world = World()
    made = world.create("configmaps", "a", data={"k": "v"})
    again = world.patch("configmaps", "a", {"data": {"k": "v"}})
    assert again is made
    assert world.store.rv == made.rv


def test_generation_counts_changes_of_the_spec_only() -> None:
    """observedGeneration means nothing if labels or status move it."""
    world = World()
    world.create("deployments", "web", spec=workload_spec(replicas=1))
    world.patch("deployments", "web", {"metadata": {"labels": {"a": "b"}}})
    world.patch("deployments", "web", {"status": {"replicas": 1}}, subresource="status")
    assert world.get("deployments", "web")["metadata"]["generation"] == 1
    world.patch("deployments", "web", {"spec": {"replicas": 2}})
    assert world.get("deployments", "web")["metadata"]["generation"] == 2


def test_status_and_spec_are_written_through_their_own_doors() -> None:
    """Status isolation: each path ignores the other's part, on create as well."""
    world = World()
    world.create("deployments", "web", spec=workload_spec(replicas=1), status={"replicas": 7})
    assert "status" not in world.get("deployments", "web")
    world.patch("deployments", "web", {"spec": {"replicas": 2}, "status": {"replicas": 7}})
    assert "status" not in world.get("deployments", "web")
    world.patch("deployments", "web", {"spec": {"replicas": 3}, "status": {"replicas": 7}}, subresource="status")
    found = world.get("deployments", "web")
    assert found["spec"]["replicas"] == 2 and found["status"] == {"replicas": 7}


def test_merge_patch_removes_nulls_and_replaces_lists() -> None:
    """RFC 7386, which most of our writes use."""
    world = World()
    world.create("configmaps", "a", data={"k": "v", "gone": "x"}, metadata={"labels": {"l": "1"}})
    world.patch("configmaps", "a", {"data": {"gone": None, "new": "y"}, "metadata": {"labels": None}})
    found = world.get("configmaps", "a")
    assert found["data"] == {"k": "v", "new": "y"}
    assert "labels" not in found["metadata"]


def test_nulls_inside_lists_read_as_absent() -> None:
    """Clients write out optional members they do not have."""
    world = World()
    condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": None}
    world.create("nodes", "n", status={"conditions": [condition]})
    world.patch("nodes", "n", {"status": {"conditions": [condition, condition]}}, subresource="status")
    found = world.get("nodes", "n")["status"]["conditions"]
    assert found == [{"type": "Ready", "status": "True"}] * 2


def test_json_patch_tests_before_it_writes() -> None:
    """A failed test operation refuses the whole patch."""
    world = World()
    world.create("configmaps", "a", data={"k": "v"})
    operations = [{"op": "test", "path": "/data/k", "value": "v"}, {"op": "replace", "path": "/data/k", "value": "w"}]
    world.patch("configmaps", "a", operations, patch_type=PatchType.JSON)
    with pytest.raises(Invalid):
        world.patch("configmaps", "a", operations, patch_type=PatchType.JSON)
    assert world.get("configmaps", "a")["data"] == {"k": "w"}


def test_old_versions_stay_as_they_were() -> None:
    """Readers hold entries without copying, so no later write may reach into them."""
    world = World()
    made = world.create("pods", "p", spec=pod_spec())
    before = repr(made.obj)
    world.patch(
        "pods", "p", [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], patch_type=PatchType.JSON
    )
    world.store.bind("p", "default", "n")
    assert repr(made.obj) == before


def test_dry_run_answers_without_storing() -> None:
    """kubectl diff asks what would happen."""
    world = World()
    world.create("configmaps", "a", data={"k": "v"})
    rv = world.store.rv
    answer = world.patch("configmaps", "a", {"data": {"k": "w"}}, options=WriteOptions(dry_run=True))
    assert answer.obj["data"] == {"k": "w"}
    assert world.get("configmaps", "a")["data"] == {"k": "v"} and world.store.rv == rv


def test_namespaced_objects_need_their_namespace() -> None:
    """As on a real server, nothing can be created in a namespace that is not there."""
    world = World()
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        world.create("configmaps", "a", "nowhere")
    with pytest.raises(BadRequest, match="does not match the namespace sent on the request"):
        world.create("configmaps", "a", "default", metadata={"namespace": "kube-system"})


def test_a_terminating_namespace_takes_nothing_new() -> None:
    """Otherwise a namespace could never become empty."""
    world = World()
    world.create("namespaces", "team")
    world.create("configmaps", "held", "team", metadata={"finalizers": ["example.com/hold"]})
    world.delete("namespaces", "team")
    with pytest.raises(Forbidden, match="unable to create new content in namespace team"):
        world.create("configmaps", "b", "team")


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"name": "Upper"}, "metadata.name"),
        ({"labels": {"a": "not valid!"}}, "metadata.labels"),
        ({"labels": {"bad key": "v"}}, "metadata.labels"),
        ({"ownerReferences": [{"kind": "Node", "name": "n", "apiVersion": "v1"}]}, "metadata.ownerReferences.uid"),
    ],
)
def test_bad_metadata_is_refused_with_its_path(metadata: dict[str, object], path: str) -> None:
    """The user must see which field is wrong."""
    world = World()
    with pytest.raises(Invalid) as refused:
        world.create("configmaps", "a", metadata=metadata)
    assert [cause["field"] for cause in refused.value.details["causes"]] == [path]
