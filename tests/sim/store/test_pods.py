"""Eviction and binding."""

from typing import Any

import pytest

from pykarpenter.kube.errors import Conflict, NotFound, ServerFault, TooManyRequests
from pykarpenter.sim.store import DeleteRequest

from .world import World, pod_spec

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def world_with_pod(status: dict[str, Any] = READY) -> World:
    world = World()
    world.create("pods", "p", spec=pod_spec(nodeName="n"), metadata={"labels": {"app": "web"}})
    world.patch("pods", "p", {"status": status}, subresource="status")
    return world


def add_budget(world: World, name: str = "budget", *, spec: dict[str, Any] | None = None, **status: Any) -> None:
    selector = {"selector": {"matchLabels": {"app": "web"}}}
    world.create("poddisruptionbudgets", name, spec={**selector, **(spec or {})})
    status = {"observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 1, **status}
    world.patch("poddisruptionbudgets", name, {"status": status}, subresource="status")


def is_going(world: World) -> bool:
    return "deletionTimestamp" in world.get("pods", "p")["metadata"]


def test_an_eviction_without_a_budget_is_a_delete_with_a_reason() -> None:
    """Controllers read DisruptionTarget to tell an eviction from a crash."""
    world = world_with_pod()
    world.store.evict("p", "default")
    assert is_going(world)
    assert world.get("pods", "p")["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"


def test_a_budget_without_room_answers_429_with_its_cause() -> None:
    """Drains recognise this answer and try again later."""
    world = world_with_pod()
    add_budget(world, disruptionsAllowed=0)
    with pytest.raises(TooManyRequests, match="Cannot evict pod as it would violate the pod's disruption budget") as no:
        world.store.evict("p", "default")
    assert no.value.details["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget budget needs 1 healthy pods and has 1 currently",
        }
    ]
    assert not is_going(world)


def test_an_allowed_eviction_takes_from_the_budget() -> None:
    """Two evictions at once must not both use the last disruption."""
    world = world_with_pod()
    add_budget(world, disruptionsAllowed=1, currentHealthy=2)
    world.store.evict("p", "default")
    status = world.get("poddisruptionbudgets", "budget")["status"]
    assert status["disruptionsAllowed"] == 0 and "p" in status["disruptedPods"]
    assert is_going(world)


def test_a_budget_that_was_not_looked_at_yet_refuses() -> None:
    """A new or changed budget counts before its controller has seen it."""
    world = world_with_pod()
    add_budget(world, disruptionsAllowed=5)
    world.patch("poddisruptionbudgets", "budget", {"spec": {"minAvailable": 3}})
    with pytest.raises(TooManyRequests) as no:
        world.store.evict("p", "default")
    assert no.value.retry_after_s == 10
    assert "is still being processed by the server" in no.value.details["causes"][0]["message"]


def test_two_budgets_on_one_pod_are_a_server_error() -> None:
    """Kubernetes does not support it, and repeating does not help."""
    world = world_with_pod()
    add_budget(world, "one", disruptionsAllowed=1)
    add_budget(world, "two", disruptionsAllowed=1)
    with pytest.raises(ServerFault, match="more than one PodDisruptionBudget"):
        world.store.evict("p", "default")
    assert not is_going(world)


def test_unhealthy_pods_may_always_go_when_the_budget_says_so() -> None:
    """AlwaysAllow keeps a broken pod from blocking a drain for ever."""
    world = world_with_pod({"phase": "Running"})
    add_budget(world, disruptionsAllowed=0, desiredHealthy=2, spec={"unhealthyPodEvictionPolicy": "AlwaysAllow"})
    world.store.evict("p", "default")
    assert is_going(world)


def test_unhealthy_pods_of_a_broken_application_are_protected_by_default() -> None:
    """IfHealthyBudget: below the desired number even unready pods may be coming up."""
    world = world_with_pod({"phase": "Running"})
    add_budget(world, disruptionsAllowed=0, desiredHealthy=2, currentHealthy=1)
    with pytest.raises(TooManyRequests):
        world.store.evict("p", "default")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Pending"])
def test_pods_that_serve_nobody_need_no_budget(phase: str) -> None:
    """Finished and waiting pods are not part of an application's health."""
    world = world_with_pod({"phase": phase})
    add_budget(world, disruptionsAllowed=0)
    world.store.evict("p", "default")
    assert world.names("pods") == [] or is_going(world)


def test_an_eviction_of_another_pod_of_the_same_name_is_a_conflict() -> None:
    """A StatefulSet's new pod must not pay for the old one."""
    world = world_with_pod()
    with pytest.raises(Conflict):
        world.store.evict("p", "default", DeleteRequest(uid="other"))
    assert not is_going(world)
    with pytest.raises(NotFound):
        world.store.evict("absent", "default")


def test_binding_places_a_pod_once() -> None:
    """Two schedulers cannot place one pod on two nodes."""
    world = World()
    world.create("pods", "p", spec=pod_spec())
    world.store.bind("p", "default", "n1")
    pod = world.get("pods", "p")
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["status"]["conditions"][0]["type"] == "PodScheduled"
    with pytest.raises(Conflict, match='pod p is already assigned to node "n1"'):
        world.store.bind("p", "default", "n2")


def test_gated_and_deleted_pods_are_not_placed() -> None:
    """A scheduling gate holds until its owner removes it."""
    world = World()
    world.create("pods", "gated", spec=pod_spec(schedulingGates=[{"name": "wait"}]))
    world.create("pods", "going", spec=pod_spec(), metadata={"finalizers": ["example.com/hold"]})
    world.delete("pods", "going")
    with pytest.raises(Conflict, match="schedulingGates"):
        world.store.bind("gated", "default", "n")
    with pytest.raises(Conflict, match="is being deleted"):
        world.store.bind("going", "default", "n")
