"""How machines leave: drains, budgets, deadlines, volumes, and instances that do not want to go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.timestamps import format_timestamp, parse_timestamp
from pykarpenter.cloud.errors import CloudError
from pykarpenter.controllers.node.eviction import DrainMode, Entry, merge
from pykarpenter.kube.contract import WatchEvent
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.sim.api import Middleware, Request
from tests.machines.cloud import cloud_world
from tests.machines.world import World, story


async def daemon_owner(world: World) -> dict[str, Any]:
    body = {
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    made = await world.api.create(kinds.DAEMON_SET, body, "default")
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": made.uid, "controller": True}


async def started(world: World, **spec: Any) -> str:
    """A ready machine; its Node's name."""
    await world.begin()
    await world.claim(**spec)
    await world.ready()
    return (await world.node()).name


async def budget(world: World, allowed: int, name: str = "web") -> None:
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
    }
    await world.api.create(kinds.PDB, body, "default")
    status = {"status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "observedGeneration": 1}}
    await world.api.patch(kinds.PDB, name, status, "default", subresource="status")


@pytest.mark.promise("API-3.4.3", "API-3.4.5")
def test_a_node_is_fenced_and_drained_tier_by_tier() -> None:
    """Daemons serve the workload to its end."""

    async def tell(world: World) -> None:
        node = await started(world)
        await world.pod("web", node, terminationGracePeriodSeconds=30)
        owner = await daemon_owner(world)
        await world.pod("agent", node, metadata={"ownerReferences": [owner]}, terminationGracePeriodSeconds=30)
        await asyncio.sleep(5)
        await world.api.delete(kinds.NODE, node)
        await asyncio.sleep(3)
        fenced = await world.node()
        assert labels.DISRUPTED_TAINT in [taint.key for taint in fenced.spec.taints]
        assert fenced.metadata.labels[labels.EXCLUDE_FROM_LOAD_BALANCERS] == "karpenter"
        assert await world.reason_of("Drained") == "Draining"
        assert (await world.api.get(kinds.POD, "web", "default")).is_deleting
        assert not (await world.api.get(kinds.POD, "agent", "default")).is_deleting
        await world.gone()
        assert [e[1] for e in world.recorded.events if e[2] == "Evicted"] == ["web", "agent"]

    story(tell, kubelets=KubeletOptions(lease_interval_s=None, pod_stop_s=10.0))


@pytest.mark.promise("API-3.4.6")
def test_an_empty_node_is_held_for_five_seconds() -> None:
    """A pod may have been bound in the moment before the taint."""

    async def tell(world: World) -> None:
        node = await started(world)
        await world.api.delete(kinds.NODE, node)
        assert 4 <= await world.gone() <= 12

    story(tell)


@pytest.mark.promise("API-3.4.10")
def test_f42_a_budget_that_never_allows_holds_the_node_and_names_itself() -> None:
    """Budgets bind us as they bind kubectl drain; the blocker must be visible."""

    async def tell(world: World) -> None:
        node = await started(world)
        await world.pod("web", node)
        await asyncio.sleep(5)
        await budget(world, allowed=0)
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(3600)
        assert await world.pods() == ["web"]
        assert await world.reason_of("Drained") == "Draining"
        blocked = [e for e in world.recorded.events if e[2] == "FailedDraining" and "blocked from eviction" in e[3]]
        assert blocked[0][0] == "Node"
        assert "default/web" in blocked[0][3]
        refused = world.recorded.counted("karpenter_pods_eviction_requests_total", code="429")
        assert 300 < refused < 500, "0.1 s growing to 10 s"
        await world.api.patch(kinds.PDB, "web", {"status": {"disruptionsAllowed": 1}}, "default", subresource="status")
        await world.gone()

    story(tell)


@pytest.mark.promise("API-3.4.10")
def test_several_budgets_for_one_pod_are_reported_and_retried() -> None:
    """The Eviction API answers 500, which is no reason to give up or to hammer."""

    async def tell(world: World) -> None:
        node = await started(world)
        await world.pod("web", node)
        await asyncio.sleep(5)
        await budget(world, 1, "one")
        await budget(world, 1, "two")
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(60)
        assert "FailedDraining" in world.recorded.reasons("Node")
        await world.api.delete(kinds.PDB, "two", "default")
        await world.gone()

    story(tell)


@pytest.mark.promise("API-3.4.9")
@pytest.mark.parametrize(("value", "held_s"), [("true", 7200.0), ("1h", 3600.0)])
def test_do_not_disrupt_holds_the_drain_as_long_as_it_says(value: str, held_s: float) -> None:
    """Work that must finish finishes."""

    async def tell(world: World) -> None:
        node = await started(world)
        await world.pod("web", node, metadata={"annotations": {labels.DO_NOT_DISRUPT: value}})
        await asyncio.sleep(5)
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(held_s - 60)
        assert await world.pods() == ["web"]
        if value == "true":
            await world.api.patch(
                kinds.POD, "web", {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: None}}}, "default"
            )
        await world.gone(within_s=120)

    story(tell)


@pytest.mark.promise("API-3.3.1", "API-3.4.7")
def test_at_the_deadline_nothing_holds_the_machine() -> None:
    """terminationGracePeriod is the operator's last word over budgets and annotations."""

    async def tell(world: World) -> None:
        node = await started(world, terminationGracePeriod="10m")
        await world.pod(
            "busy",
            node,
            metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}},
            terminationGracePeriodSeconds=120,
        )
        await asyncio.sleep(5)
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(2)
        claim = await world.get_claim()
        assert claim is not None
        deadline = parse_timestamp(claim.metadata.annotations[labels.TERMINATION_TIMESTAMP])
        assert deadline == parse_timestamp(claim.metadata.deletion_timestamp or "") + 600
        await asyncio.sleep(470)
        busy = await world.api.get(kinds.POD, "busy", "default")
        assert not busy.is_deleting
        await asyncio.sleep(15)
        busy = await world.api.get(kinds.POD, "busy", "default")
        assert busy.is_deleting
        assert busy.metadata.deletion_grace_period_seconds is not None
        assert busy.metadata.deletion_grace_period_seconds <= 120
        await world.gone(within_s=200)
        assert world.clock.now() <= deadline + 15
        assert "Disrupted" in world.recorded.reasons("Pod")
        assert world.recorded.counted("karpenter_pods_drained_total", reason="Forceful Termination") == 1

    story(tell, kubelets=KubeletOptions(lease_interval_s=None, pod_stop_s=3600.0))


@pytest.mark.promise("API-3.4.7")
def test_f42_a_budget_ends_at_the_deadline_without_waiting_for_a_retry() -> None:
    """Refused evictions back off to ten seconds; the forced delete comes on time, and the pod has its grace."""

    async def tell(world: World) -> None:
        node = await started(world, terminationGracePeriod="10m")
        await world.pod("web", node, terminationGracePeriodSeconds=30)
        await asyncio.sleep(5)
        await budget(world, allowed=0)
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        deleted = world.clock.now()
        await asyncio.sleep(568)
        assert not (await world.api.get(kinds.POD, "web", "default")).is_deleting
        await asyncio.sleep(5)
        pod = await world.api.get(kinds.POD, "web", "default")
        assert pod.is_deleting
        assert (pod.metadata.deletion_grace_period_seconds or 0) >= 28
        await world.gone(within_s=60)
        assert world.clock.now() - deleted <= 615

    story(tell, kubelets=KubeletOptions(lease_interval_s=None, pod_stop_s=3600.0))


def test_s9_f13_a_deadline_does_not_wait_to_see_an_eviction_that_was_accepted() -> None:
    """The watch of pods has fallen silent: no eviction is repeated, and the forced delete reads the pod anew."""

    async def tell(world: World) -> None:
        node = await started(world)
        await world.pod("web", node, terminationGracePeriodSeconds=600)
        await asyncio.sleep(5)
        sent: list[str] = []

        class SilentPodWatch(Middleware):
            async def before(self, request: Request) -> None:
                if request.kind is kinds.POD and request.verb in ("evict", "delete"):
                    sent.append(request.verb)

            async def on_event(self, request: Request, event: WatchEvent[Any]) -> Sequence[WatchEvent[Any]]:
                return () if request.kind is kinds.POD else (event,)

        world.operator_api.middleware.append(SilentPodWatch())
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(60)
        assert sent == ["evict"]
        deadline = {labels.TERMINATION_TIMESTAMP: format_timestamp(world.clock.now() + 30)}
        await world.api.patch(kinds.NODE_CLAIM, "c1", {"metadata": {"annotations": deadline}})
        await asyncio.sleep(10)
        assert sent == ["evict", "delete"]

    story(tell, kubelets=KubeletOptions(lease_interval_s=None, pod_stop_s=3600.0))


@pytest.mark.promise("API-3.4.2")
def test_f18_an_instance_that_vanished_releases_its_dead_node_without_a_drain() -> None:
    """Nothing can be evicted from a machine that is gone."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        node = await started(world)
        await world.pod("web", node, metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await asyncio.sleep(5)
        claim = await world.get_claim()
        assert claim is not None
        cloud.lose(claim)
        unhealthy = {"metadata": {"labels": {"kwok.x-k8s.io/stage": "unhealthy"}}}
        await world.api.patch(kinds.NODE, node, unhealthy)
        dead = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        await world.api.patch(kinds.NODE, node, dead, subresource="status")
        await world.api.delete(kinds.NODE, node)
        assert await world.gone() < 10
        assert await world.nodes() == []

    story(tell)


def test_f4_the_finalizer_waits_for_an_instance_that_lives_on() -> None:
    """An accepted delete is not a dead machine."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await started(world)
        cloud.ignored_deletes = 20
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(60)
        assert await world.status_of("InstanceTerminating") == "True"
        claim = await world.get_claim()
        assert claim is not None
        assert claim.metadata.finalizers == [labels.TERMINATION_FINALIZER]
        assert len(cloud.instances) == 1
        await world.gone(within_s=200)
        assert cloud.instances == {}

    story(tell)


def test_f17_a_forbidden_delete_is_named_on_the_claim_and_finishes_once_allowed() -> None:
    """A finalizer that waits for a permission must say which."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await started(world)

        def forbid(_: Any) -> None:
            raise CloudError("not authorized to perform ec2:TerminateInstances")

        cloud.faults["delete"] = forbid
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(120)
        claim = await world.get_claim()
        assert claim is not None
        shown = {c.type: c.message for c in claim.status.conditions}
        assert "ec2:TerminateInstances" in shown["pykarpenter.sh/TerminationBlocked"]
        del cloud.faults["delete"]
        await world.gone(within_s=120)
        assert cloud.instances == {}

    story(tell)


async def volume(world: World, node: str) -> None:
    body = {
        "metadata": {"name": "va-1"},
        "spec": {"attacher": "csi", "nodeName": node, "source": {"persistentVolumeName": "pv-1"}},
    }
    await world.api.create(kinds.VOLUME_ATTACHMENT, body)


@pytest.mark.promise("API-3.4.8")
def test_f43_a_volume_that_never_detaches_holds_the_machine_to_its_deadline() -> None:
    """Data that is still being written is worth the wait, but not forever."""

    async def tell(world: World) -> None:
        node = await started(world, terminationGracePeriod="30m")
        await volume(world, node)
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(1700)
        assert await world.reason_of("VolumesDetached") == "AwaitingVolumeDetachment"
        assert "AwaitingVolumeDetachment" in world.recorded.reasons("Node")
        taken = await world.gone(within_s=200)
        assert 90 <= taken <= 120

    story(tell)


@pytest.mark.promise("API-3.4.8")
def test_volumes_of_pods_that_stay_are_not_waited_for() -> None:
    """A daemon that tolerates everything keeps its volume until the machine is gone."""

    async def tell(world: World) -> None:
        node = await started(world)
        await world.api.create(
            kinds.PVC, {"metadata": {"name": "data", "namespace": "default"}, "spec": {"volumeName": "pv-1"}}, "default"
        )
        await world.pod(
            "agent",
            node,
            tolerations=[{"operator": "Exists"}],
            volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
        )
        await volume(world, node)
        await asyncio.sleep(3)
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        assert await world.gone() < 20

    story(tell)


def test_f13_pods_are_read_live_before_a_drain_counts_as_done() -> None:
    """A watch that lags a minute behind must not make a busy node look empty."""

    async def tell(world: World) -> None:
        node = await started(world)

        class BlindPodWatch:
            async def before(self, request: Any) -> None:
                pass

            async def after(self, request: Any, error: Any) -> None:
                pass

            async def on_event(self, request: Any, event: Any) -> Any:
                return () if request.kind is kinds.POD else (event,)

        world.operator_api.middleware.append(BlindPodWatch())  # type: ignore[arg-type]
        await world.pod("busy", node, metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}})
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(600)
        assert await world.pods() == ["busy"]
        assert len(await world.nodes()) == 1

    story(tell)


def test_b35_a_claim_with_a_stolen_provider_id_deletes_nothing() -> None:
    """Whoever edits a providerID by hand must not be able to kill a machine with it."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await world.begin()
        for name in ("c1", "c2"):
            await world.claim(name)
            await world.ready(name)
        first = await world.get_claim("c1")
        assert first is not None
        stolen = {"status": {"providerID": first.status.provider_id}}
        await world.api.patch(kinds.NODE_CLAIM, "c2", stolen, subresource="status")
        await asyncio.sleep(2)
        await world.api.delete(kinds.NODE_CLAIM, "c2")
        await asyncio.sleep(300)
        assert len(cloud.instances) == 2
        assert [node.is_deleting for node in await world.nodes()] == [False, False]
        assert await world.status_of("pykarpenter.sh/IdentityConflict", "c2") == "True"
        assert await world.status_of("Ready", "c1") == "True"

    story(tell)


def test_b35_a_finalizer_taken_off_by_hand_is_put_back() -> None:
    """Otherwise the next delete would leave a machine that nobody owns."""

    async def tell(world: World) -> None:
        await world.begin()
        await world.claim()
        await world.ready()
        await world.api.patch(kinds.NODE_CLAIM, "c1", {"metadata": {"finalizers": None}})
        await asyncio.sleep(5)
        claim = await world.get_claim()
        assert claim is not None
        assert claim.metadata.finalizers == [labels.TERMINATION_FINALIZER]

    story(tell)


def test_f17_a_delete_refused_with_other_words_each_time_is_tried_at_its_pace() -> None:
    """What is written about an error must not set off the next try at once."""

    async def tell(world: World) -> None:
        cloud = cloud_world(world)
        await world.begin()
        await world.claim()
        await world.ready()
        attempts: list[str] = []

        def refuse(claim: Any) -> None:
            attempts.append(claim.name)
            assert len(attempts) < 500, "tried again without a pause"
            raise CloudError(f"not authorized (request {len(attempts)})")

        cloud.faults["delete"] = refuse
        node = await world.node()
        await world.api.delete(kinds.NODE_CLAIM, "c1")
        await asyncio.sleep(60)
        # Without its Node the claim itself has to ask.
        body = {"metadata": {"finalizers": []}}
        await world.api.patch(kinds.NODE, node.name, body)
        await asyncio.sleep(300)
        assert len(attempts) < 40
        del cloud.faults["delete"]
        await world.gone(within_s=70)

    story(tell)


@pytest.mark.promise("API-3.4.13")
def test_a_forced_drain_replaces_a_bounded_one_and_deadlines_only_move_closer() -> None:
    """A reboot's drain ends in leaving pods alone; once the machine goes for good it must not."""
    bounded, forced = Entry("n", DrainMode.TIMEOUT, 100.0), Entry("n", DrainMode.FORCE, 500.0, "Drifted")
    assert merge(bounded, forced) == forced
    assert merge(forced, bounded) == forced
    assert merge(forced, Entry("n", DrainMode.FORCE, 300.0)).deadline == 300.0
    assert merge(forced, Entry("n", DrainMode.FORCE, 900.0)).deadline == 500.0
    assert merge(Entry("n", DrainMode.FORCE), forced).deadline == 500.0
