"""Strategic merge and server-side apply."""

from typing import Any

import pytest

from pykarpenter.kube.contract import PatchType
from pykarpenter.kube.errors import ApiError, Conflict, Invalid, NotFound
from pykarpenter.sim.store import Entry, WriteOptions
from pykarpenter.sim.store.scale import scale_of

from .test_custom_kinds import CRD
from .world import World, workload_spec


def strategic(world: World, plural: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
    return world.patch(plural, name, patch, patch_type=PatchType.STRATEGIC).obj


def deployment() -> World:
    world = World()
    containers = [
        {"name": "main", "image": "app:1", "env": [{"name": "A", "value": "1"}]},
        {"name": "side", "image": "s:1"},
    ]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    world.create("deployments", "web", spec=workload_spec(template=template))
    return world


def containers(obj: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["spec"]["template"]["spec"]["containers"]
    return found


def change_containers(world: World, *items: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    spec = {"containers": list(items), **more}
    return containers(strategic(world, "deployments", "web", {"spec": {"template": {"spec": spec}}}))


def test_keyed_lists_merge_item_by_item() -> None:
    """kubectl set image changes one container and leaves the others."""
    found = change_containers(deployment(), {"name": "side", "image": "s:2"})
    assert [(item["name"], item["image"]) for item in found] == [("main", "app:1"), ("side", "s:2")]


def test_lists_inside_keyed_items_merge_too() -> None:
    """env by name, inside containers by name."""
    found = change_containers(deployment(), {"name": "main", "env": [{"name": "B", "value": "2"}]})
    assert found[0]["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]


def test_directives_delete_replace_and_order() -> None:
    """What kubectl's own patches contain."""
    assert [item["name"] for item in change_containers(deployment(), {"name": "side", "$patch": "delete"})] == ["main"]
    replaced = change_containers(deployment(), {"$patch": "replace"}, {"name": "only", "image": "o:1"})
    assert [item["name"] for item in replaced] == ["only"]
    order = {"$setElementOrder/containers": [{"name": "new"}, {"name": "main"}]}
    found = change_containers(deployment(), {"name": "new", "image": "n:1"}, **order)
    assert [item["name"] for item in found] == ["new", "main", "side"]


def test_primitive_lists_merge_and_lose_items() -> None:
    """Finalizers are a set."""
    world = World()
    world.create("nodes", "n", metadata={"finalizers": ["a/1", "b/2"]})
    strategic(world, "nodes", "n", {"metadata": {"finalizers": ["c/3"]}})
    found = strategic(world, "nodes", "n", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/1"]}})
    assert found["metadata"]["finalizers"] == ["b/2", "c/3"]


def test_taints_and_tolerations_are_replaced_whole() -> None:
    """Their lists are atomic: a patch states all of them."""
    world = World()
    world.create("nodes", "n", spec={"taints": [{"key": "a", "effect": "NoSchedule"}]})
    found = strategic(world, "nodes", "n", {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}})
    assert [taint["key"] for taint in found["spec"]["taints"]] == ["b"]


def test_conditions_merge_by_type() -> None:
    """Two controllers report on one node."""
    world = World()
    world.create("nodes", "n", status={"conditions": [{"type": "Ready", "status": "False"}]})
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]}}
    found = world.patch("nodes", "n", patch, patch_type=PatchType.STRATEGIC, subresource="status").obj
    assert [(item["type"], item["status"]) for item in found["status"]["conditions"]] == [
        ("Ready", "True"),
        ("Disk", "False"),
    ]


def test_retained_keys_drop_the_rest() -> None:
    """A Deployment's strategy is one of several."""
    world = deployment()
    strategy = {"$retainKeys": ["type"], "type": "Recreate"}
    found = strategic(world, "deployments", "web", {"spec": {"strategy": strategy}})
    assert found["spec"]["strategy"] == {"type": "Recreate"}


def test_custom_kinds_know_no_strategic_merge() -> None:
    """As on an API server: 415."""
    world = World()
    world.store.create(world.kind("customresourcedefinitions"), CRD)
    world.create("widgets", "w", spec={"size": 1})
    with pytest.raises(ApiError) as refused:
        world.patch("widgets", "w", {"spec": {"size": 2}}, patch_type=PatchType.STRATEGIC)
    assert refused.value.code == 415


def apply(world: World, plural: str, name: str, config: dict[str, Any], manager: str, **how: Any) -> Entry:
    options = WriteOptions(field_manager=manager, force=how.pop("force", False))
    return world.patch(plural, name, config, patch_type=PatchType.APPLY, options=options, **how)


def test_apply_creates_and_then_changes_what_it_states() -> None:
    """One call for both, and the second time nothing happens."""
    world = World()
    first = apply(world, "configmaps", "c", {"data": {"a": "1", "b": "2"}}, "me")
    assert first.obj["data"] == {"a": "1", "b": "2"}
    rv = world.store.rv
    assert apply(world, "configmaps", "c", {"data": {"a": "1", "b": "2"}}, "me").rv == first.rv == rv
    world.clock.time += 60
    assert apply(world, "configmaps", "c", {"data": {"a": "1", "b": "2"}}, "me").rv == rv


def test_apply_removes_what_it_no_longer_states() -> None:
    """But leaves what others set."""
    world = World()
    apply(world, "configmaps", "c", {"data": {"a": "1", "b": "2"}}, "me")
    world.patch("configmaps", "c", {"data": {"theirs": "3"}}, options=WriteOptions(field_manager="them"))
    assert apply(world, "configmaps", "c", {"data": {"a": "1"}}, "me").obj["data"] == {"a": "1", "theirs": "3"}


def test_apply_refuses_to_take_a_field_from_another() -> None:
    """The conflict names the manager and the field; force takes it."""
    world = World()
    apply(world, "configmaps", "c", {"data": {"a": "1"}}, "first")
    with pytest.raises(Conflict, match=r'Apply failed with 1 conflict: conflict with "first": \.data\.a') as no:
        apply(world, "configmaps", "c", {"data": {"a": "2"}}, "second")
    assert no.value.details["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".data.a"}
    ]
    assert apply(world, "configmaps", "c", {"data": {"a": "2"}}, "second", force=True).obj["data"] == {"a": "2"}
    with pytest.raises(Conflict):
        apply(world, "configmaps", "c", {"data": {"a": "1"}}, "first")


def test_equal_values_are_shared() -> None:
    """Two managers that want the same do not disagree."""
    world = World()
    apply(world, "configmaps", "c", {"data": {"a": "1"}}, "first")
    apply(world, "configmaps", "c", {"data": {"a": "1"}}, "second")
    assert apply(world, "configmaps", "c", {}, "first").obj["data"] == {"a": "1"}
    assert "data" not in apply(world, "configmaps", "c", {}, "second").obj


def test_a_plain_write_takes_its_fields_along() -> None:
    """kubectl scale after an apply: the applied replicas now conflict."""
    world = deployment()
    apply(world, "deployments", "web", {"spec": {"replicas": 2}}, "me", force=True)
    world.patch("deployments", "web", {"spec": {"replicas": 5}}, options=WriteOptions(field_manager="kubectl"))
    with pytest.raises(Conflict, match=r'conflict with "kubectl" using apps/v1: \.spec\.replicas'):
        apply(world, "deployments", "web", {"spec": {"replicas": 2}}, "me")


def test_items_of_keyed_lists_have_owners_of_their_own() -> None:
    """A sidecar injector and an author share one list of containers."""
    world = deployment()
    config = {"spec": {"template": {"spec": {"containers": [{"name": "extra", "image": "x:1"}]}}}}
    made = apply(world, "deployments", "web", config, "injector")
    assert [item["name"] for item in containers(made.obj)] == ["main", "side", "extra"]
    (entry,) = made.obj["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("injector", "Apply")
    owned = entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert owned == {'k:{"name":"extra"}': {".": {}, "f:name": {}, "f:image": {}}}
    empty = {"spec": {"template": {"spec": {}}}}
    assert [item["name"] for item in containers(apply(world, "deployments", "web", empty, "injector").obj)] == [
        "main",
        "side",
    ]


def test_custom_kinds_apply_by_their_own_keys() -> None:
    """List keys come from the definition."""
    world = World()
    world.store.create(world.kind("customresourcedefinitions"), CRD)
    apply(world, "widgets", "w", {"spec": {"size": 1, "tags": [{"key": "a"}]}}, "one")
    made = apply(world, "widgets", "w", {"spec": {"tags": [{"key": "b"}]}}, "two")
    assert [tag["key"] for tag in made.obj["spec"]["tags"]] == ["a", "b"]


def test_apply_needs_a_manager() -> None:
    """Fields without an owner could never be given up again."""
    with pytest.raises(Invalid, match="fieldManager: Required value"):
        apply(World(), "configmaps", "c", {}, "")


def test_status_is_applied_through_its_own_door() -> None:
    """Status and spec have separate entries."""
    world = deployment()
    made = apply(
        world, "deployments", "web", {"spec": {"replicas": 9}, "status": {"replicas": 1}}, "s", subresource="status"
    )
    assert made.obj["status"] == {"replicas": 1} and made.obj["spec"]["replicas"] == 1


def test_scale_reads_and_writes_replicas() -> None:
    """kubectl scale and autoscalers know nothing else of a kind."""
    world = deployment()
    scale = scale_of(world.kind("deployments"), world.get("deployments", "web"))
    assert scale["spec"] == {"replicas": 1} and scale["status"] == {"replicas": 0, "selector": "app=web"}
    world.patch("deployments", "web", {"spec": {"replicas": 4}}, subresource="scale")
    assert world.get("deployments", "web")["spec"]["replicas"] == 4
    world.store.update(world.kind("deployments"), "web", {"spec": {"replicas": 6}}, "default", subresource="scale")
    assert world.get("deployments", "web")["spec"]["replicas"] == 6
    with pytest.raises(Invalid, match=r"spec\.replicas: Invalid value: -1"):
        world.patch("deployments", "web", {"spec": {"replicas": -1}}, subresource="scale")
    with pytest.raises(Conflict):
        patch = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1}}
        world.patch("deployments", "web", patch, subresource="scale")


def test_kinds_without_replicas_have_no_scale() -> None:
    """The subresource is not there."""
    world = World()
    world.create("configmaps", "c")
    with pytest.raises(NotFound):
        world.patch("configmaps", "c", {"spec": {"replicas": 1}}, subresource="scale")
