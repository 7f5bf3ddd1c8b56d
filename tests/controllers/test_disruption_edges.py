"""Disruption when something goes wrong half way: what is given up, what goes on, and what is written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.api.meta import find_condition
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.timestamps import format_timestamp, parse_timestamp
from pykarpenter.controllers.disruption import loop as disruption_loop
from pykarpenter.controllers.disruption.loop import DisruptionLoop
from pykarpenter.controllers.disruption.orchestration import Orchestration
from pykarpenter.core.disruption.commands import Method
from pykarpenter.core.disruption.decide import decide
from pykarpenter.kube.errors import Conflict, Forbidden, NotFound, ServerFault
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.settings import Settings
from pykarpenter.sim.api import Middleware, Request
from tests.controllers.disruption_steps import (
    APART,
    begin,
    drift_all,
    half_full,
    hold,
    make_sick,
    nodes_left,
    one_node_each,
    tainted,
)
from tests.controllers.world import World, is_true, story

T = TypeVar("T")

# Machines that hold one pod of three cpus.
FOR_ONE_POD = [
    {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c-4x-amd64-linux"]},
    {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
]


def part_of(world: World, kind: type[T]) -> T:
    """A controller of the running operator."""
    assert world.operator is not None
    return next(part for part in world.operator._controllers if isinstance(part, kind))


class _Passes:
    """The methods of each pass, and the methods of the commands that it found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[tuple[Method, ...], tuple[Method, ...]]] = []
        monkeypatch.setattr(disruption_loop, "decide", self._decide)

    def _decide(self, world: Any, simulation: Any, stamp: float, methods: Sequence[Method], *rest: Any) -> Any:
        plan = decide(world, simulation, stamp, methods, *rest)
        self.seen.append((tuple(methods), tuple(command.method for command in plan.commands)))
        return plan


@pytest.mark.promise("DIS-10.4")
def test_failed_second_look_of_several_machines_falls_through_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A multi-node command that never survives its pause must not keep single machines from their turn."""
    passes = _Passes(monkeypatch)

    async def main(world: World) -> None:
        await begin(world)
        await half_full(world, 3)

        async def several() -> bool:
            return any(Method.MULTI_NODE in found for _, found in passes.seen)

        await world.until(several, 120)
        for pod in await world.pods("web"):
            patch = {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "true"}}}
            await world.api.patch(kinds.POD, pod.name, patch, pod.namespace)
        passes.seen.clear()
        await hold(world, 20)

    story(main)
    tried = [methods for methods, _ in passes.seen]
    after_it = next(methods for methods in tried if Method.SINGLE_NODE in methods)
    assert Method.MULTI_NODE not in after_it
    assert Method.EMPTINESS not in after_it
    assert Method.REPAIR in after_it


class _NoTaint(Middleware):
    """One node cannot be tainted."""

    def __init__(self) -> None:
        self.node = ""
        self.refused = 0

    async def before(self, request: Request) -> None:
        if request.verb == "patch" and request.kind is kinds.NODE and request.name == self.node:
            self.refused += 1
            raise Forbidden("admission webhook denied the request")


@pytest.mark.promise("DIS-11.7")
def test_removal_goes_on_with_the_machines_that_could_be_marked() -> None:
    """Two of three may go; a webhook guards one of them."""
    guard = _NoTaint()

    async def main(world: World) -> None:
        await begin(world)
        found = await half_full(world, 3)
        guard.node = found[0].name
        await nodes_left(world, 2, 600)
        assert guard.node in {node.name for node in await world.nodes()}
        assert guard.refused > 0
        await world.until_running("web", 3)

    story(main, faults=(guard,))


class _NoDelete(Middleware):
    """No claim can be deleted."""

    def __init__(self) -> None:
        self.refused = 0

    async def before(self, request: Request) -> None:
        if request.verb == "delete" and request.kind is kinds.NODE_CLAIM:
            self.refused += 1
            raise Forbidden("admission webhook denied the request")


@pytest.mark.promise("DIS-11.5")
def test_machine_that_cannot_be_deleted_is_back_in_service_after_the_timeout() -> None:
    """Retried for ten minutes, then given up: it must not stay tainted for ever."""
    guard = _NoDelete()

    async def main(world: World) -> None:
        await begin(world)
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        (node,) = await world.nodes()
        await world.scale("web", 0)

        async def is_tainted() -> bool:
            return tainted(await world.api.get(kinds.NODE, node.name))

        await world.until(is_tainted, 60)
        started = world.clock.now()
        await world.api.patch(kinds.NODE_POOL, "default", {"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}})

        async def is_back() -> bool:
            return not await is_tainted()

        await world.until(is_back, 900)
        assert 600 <= world.clock.now() - started <= 680
        assert guard.refused > 3
        (claim,) = await world.claims()
        assert find_condition(claim.status.conditions, "DisruptionReason") is None

    story(main, faults=(guard,))


async def replacements_of(world: World, old: str) -> list[NodeClaim]:
    return [c for c in await world.claims() if c.name != old and is_true(c, "Launched")]


@pytest.mark.promise("DIS-18.7", "DIS-11.3")
def test_acceptance_7_other_replacements_are_kept_when_one_is_lost() -> None:
    """What was bought is ordinary capacity from then on."""

    async def main(world: World) -> None:
        await begin(world, requirements=[], consolidateAfter="Never")
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "60s"}})
        await world.deployment("web", 2, cpu="3")
        await world.until_running("web", 2, 300)
        (node,), (old,) = await world.nodes(), await world.claims()
        # One machine holds both; its successors may hold one each.
        patch = {"spec": {"template": {"spec": {"requirements": FOR_ONE_POD}}}}
        await world.api.patch(kinds.NODE_POOL, "default", patch)

        async def both() -> list[NodeClaim]:
            found = await replacements_of(world, old.name)
            return found if len(found) == 2 else []

        lost, kept = await world.until(both, 120)
        await world.api.delete(kinds.NODE_CLAIM, lost.name)

        async def back() -> bool:
            return not tainted(await world.api.get(kinds.NODE, node.name))

        await world.until(back, 30)
        claim = await world.api.get(kinds.NODE_CLAIM, old.name)
        assert not claim.is_deleting
        assert find_condition(claim.status.conditions, "DisruptionReason") is None
        assert not (await world.api.get(kinds.NODE_CLAIM, kept.name)).is_deleting
        assert await world.running("web") == 2

    story(main)


@pytest.mark.promise("DIS-11.9")
def test_s8_replacement_lost_after_it_was_ready_keeps_the_old_machine() -> None:
    """Ready once is not ready now: the pods would have nowhere to go."""

    async def main(world: World) -> None:
        await begin(world, requirements=[], consolidateAfter="Never")
        await world.deployment("web", 2, cpu="3")
        await world.until_running("web", 2, 300)
        (node,), (old,) = await world.nodes(), await world.claims()
        held = [{"key": "example.com/warming-up", "effect": "NoSchedule"}]
        patch = {"spec": {"template": {"spec": {"requirements": FOR_ONE_POD, "startupTaints": held}}}}
        await world.api.patch(kinds.NODE_POOL, "default", patch)

        async def both() -> list[NodeClaim]:
            found = [c for c in await replacements_of(world, old.name) if is_true(c, "Registered")]
            return found if len(found) == 2 else []

        async def warm_up(claim: NodeClaim) -> None:
            await world.api.patch(kinds.NODE, claim.status.node_name, {"spec": {"taints": []}})

        async def ready() -> bool:
            return is_true(await world.api.get(kinds.NODE_CLAIM, lost.name), "Initialized")

        lost, kept = await world.until(both, 120)
        await warm_up(lost)
        await world.until(ready, 60)
        await hold(world, 5)
        assert tainted(await world.api.get(kinds.NODE, node.name))
        await world.api.delete(kinds.NODE_CLAIM, lost.name)
        await warm_up(kept)
        await hold(world, 10)
        assert not tainted(await world.api.get(kinds.NODE, node.name))
        assert not (await world.api.get(kinds.NODE_CLAIM, old.name)).is_deleting
        assert not (await world.api.get(kinds.NODE_CLAIM, kept.name)).is_deleting
        assert await world.running("web") == 2

    story(main)


REPAIR = Settings(feature_gates=FeatureGates(node_repair=True))


@pytest.mark.promise("DIS-18.9")
def test_acceptance_9_lost_replacement_of_a_repair_neither_deletes_nor_stamps() -> None:
    """A sick machine that serves is better than none."""

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        await one_node_each(world, 5)
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "60s"}})
        sick = (await world.nodes())[0]
        known = {claim.name for claim in await world.claims()}
        (old,) = [c for c in await world.claims() if c.status.node_name == sick.name]
        await make_sick(world, sick.name, "KWOKUnhealthy", world.clock.now())

        async def replacement() -> list[NodeClaim]:
            return [c for c in await world.claims() if c.name not in known and is_true(c, "Launched")]

        (new,) = await world.until(replacement, 600)
        assert (
            labels.TERMINATION_TIMESTAMP not in (await world.api.get(kinds.NODE_CLAIM, old.name)).metadata.annotations
        )
        await world.api.delete(kinds.NODE_CLAIM, new.name)

        async def back() -> bool:
            return not tainted(await world.api.get(kinds.NODE, sick.name))

        await world.until(back, 30)
        claim = await world.api.get(kinds.NODE_CLAIM, old.name)
        assert not claim.is_deleting
        assert labels.TERMINATION_TIMESTAMP not in claim.metadata.annotations

    story(main, settings=REPAIR)


@pytest.mark.promise("DIS-18.14", "DIS-11.4")
@pytest.mark.parametrize(
    ("own", "stamped", "bound"), [("5s", None, 5.0), ("0s", None, 0.0), ("24h", None, None), ("24h", -3600.0, 0.0)]
)
def test_acceptance_14_stamp_is_the_shorter_bound_and_an_earlier_one_stays(
    own: str, stamped: float | None, bound: float | None
) -> None:
    """A deadline only tightens."""

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        await world.pool(
            "bounded",
            template={"terminationGracePeriod": own},
            disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]},
        )
        await world.deployment(
            "web", 5, cpu="1", topologySpreadConstraints=APART, nodeSelector={labels.NODEPOOL: "bounded"}
        )
        await world.until_running("web", 5)
        sick = (await world.nodes())[0]
        (old,) = [c for c in await world.claims() if c.status.node_name == sick.name]
        assert world.operator is not None
        policies = world.operator.context.provider.traits.repair_policies
        (policy,) = [p for p in policies if p.condition_type == "KWOKUnhealthy"]
        early = None
        if stamped is not None:
            early = format_timestamp(world.clock.now() + stamped)
            body = {"metadata": {"annotations": {labels.TERMINATION_TIMESTAMP: early}}}
            await world.api.patch(kinds.NODE_CLAIM, old.name, body)
        await make_sick(world, sick.name, "KWOKUnhealthy", world.clock.now())

        async def going() -> NodeClaim | None:
            found = [c for c in await world.claims() if c.name == old.name and c.is_deleting]
            return found[0] if found else None

        claim = await world.until(going, 900)
        stamp = claim.metadata.annotations[labels.TERMINATION_TIMESTAMP]
        if early is not None:
            assert stamp == early
            return
        deleted = parse_timestamp(claim.metadata.deletion_timestamp)
        wanted = bound if bound is not None else policy.termination_grace_period_s
        assert parse_timestamp(stamp) - deleted == pytest.approx(wanted, abs=1.0)

    story(main, settings=REPAIR)


@pytest.mark.promise("DIS-10.1")
def test_waiting_second_look_does_not_hold_up_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """An urgent repair starts while a quiet consolidation still waits for its second look."""
    passes = _Passes(monkeypatch)

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        await one_node_each(world, 5)
        await world.pool("quiet", disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]})
        sick = (await world.nodes())[0]
        await world.deployment("idle", 1, nodeSelector={labels.NODEPOOL: "quiet"})
        await world.until_running("idle", 1)
        (idle,) = [n for n in await world.nodes() if n.metadata.labels[labels.NODEPOOL] == "quiet"]
        await hold(world, 120)
        await world.scale("idle", 0)

        async def waits() -> bool:
            return any(Method.EMPTINESS in found for _, found in passes.seen)

        await world.until(waits, 60)
        await make_sick(world, sick.name, "KWOKUnhealthy", world.clock.now() - 60)

        async def repairs() -> bool:
            return tainted(await world.api.get(kinds.NODE, sick.name))

        await world.until(repairs, 14)
        assert not tainted(await world.api.get(kinds.NODE, idle.name))
        await nodes_left(world, 5, 120)

    story(main, settings=REPAIR)


@pytest.mark.promise("DIS-17.5", "DIS-11.5")
def test_command_that_succeeds_just_after_its_timeout_is_not_rolled_back() -> None:
    """Q5: the replacement is there, so the old machine goes, late or not."""

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="Never")
        await world.deployment("web", 1)
        await world.until_running("web", 1)
        (old,) = await world.nodes()
        # The queue looks every second: the machine is ready within the very second in which time is up.
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "595s"}})
        await drift_all(world)

        async def is_tainted() -> bool:
            return tainted(await world.api.get(kinds.NODE, old.name))

        await world.until(is_tainted, 60)
        (running,) = part_of(world, Orchestration)._running.values()
        (name,) = running.replacements

        async def ready() -> bool:
            return is_true(await world.api.get(kinds.NODE_CLAIM, name), "Initialized")

        await world.until(ready, 640)
        running.started_at -= 3600
        await nodes_left(world, 1, 120)
        assert (await world.nodes())[0].name != old.name

    story(main)


@pytest.mark.promise("DIS-11.8")
def test_machines_that_will_receive_pods_are_nominated_and_commands_do_not_overlap() -> None:
    """A destination is not taken away while its pods are on their way."""

    async def main(world: World) -> None:
        await begin(world)
        await half_full(world, 3)

        async def started() -> bool:
            return any(tainted(node) for node in await world.nodes())

        await world.until(started, 120)
        assert world.operator is not None
        views = world.operator.context.state.views()
        (kept,) = [view for view in views if not view.marked_for_deletion]
        assert kept.nominated_until > world.clock.now()
        await nodes_left(world, 1, 120)
        # A command that runs keeps its machines to itself.
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", {"spec": {"nodeRegistrationDelay": "60s"}})
        await drift_all(world)
        queue = part_of(world, Orchestration)

        async def runs() -> bool:
            return bool(queue.commands)

        await world.until(runs, 120)
        assert not await part_of(world, DisruptionLoop)._starter.start(queue.commands[0])

    story(main)


@pytest.mark.promise("DIS-17.4")
def test_change_during_a_run_is_looked_at_again() -> None:
    """Q4: the stamp is the one from the begin of the run."""
    stamp = disruption_loop.ChangeStamp()
    begun = stamp.at(revision=1, now=0.0)
    assert stamp.at(revision=1, now=10.0) == begun
    assert stamp.peek(revision=2) is None, "changed while the run went on"
    renewed = stamp.at(revision=2, now=20.0)
    assert renewed != begun
    assert stamp.at(revision=2, now=319.0) == renewed
    assert stamp.at(revision=2, now=320.0) != renewed, "and at least every five minutes"


class _CostWrites(Middleware):
    """Pods' deletion costs cannot be written for a while, in different ways."""

    def __init__(self) -> None:
        self.answers: list[Exception] = [
            Conflict("changed"),
            NotFound("gone"),
            ServerFault("etcd"),
            ServerFault("etcd"),
        ]
        self.sent = 0

    async def before(self, request: Request) -> None:
        if request.verb == "patch" and request.kind is kinds.POD and not request.subresource:
            self.sent += 1
            if self.answers:
                raise self.answers.pop(0)


@pytest.mark.promise("DIS-15.1.5")
def test_cost_write_that_conflicts_is_dropped_and_one_that_fails_is_repeated() -> None:
    """The next pass has newer facts than a write that lost a race."""
    writes = _CostWrites()

    async def main(world: World) -> None:
        await begin(world, consolidateAfter="1h")
        await one_node_each(world, 3)

        async def ranked() -> bool:
            return all(labels.POD_DELETION_COST in pod.metadata.annotations for pod in await world.pods("web"))

        await world.until(ranked, 600)
        results = [
            found["result"] for name, found, _ in world.metrics.counts if name.endswith("annotation_writes_total")
        ]
        assert sorted(set(results)) == ["error", "skipped_conflict", "skipped_notfound", "updated"]
        assert results.count("error") == 2
        assert results.count("updated") == 3

    story(main, faults=(writes,), settings=Settings(feature_gates=FeatureGates(pod_deletion_cost_management=True)))


async def spare(world: World, replicas: int) -> None:
    """A buffer of so many virtual pods of one cpu."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"name": "spare"}, "template": {"spec": {"containers": [container]}}}
    await world.api.create(kinds.POD_TEMPLATE, template, "default")
    spec = {"podTemplateRef": {"name": "spare"}, "replicas": replicas}
    await world.api.create(kinds.CAPACITY_BUFFER, {"metadata": {"name": "spare"}, "spec": spec}, "default")


@pytest.mark.promise("DIS-15.1", "DIS-12.2")
@pytest.mark.parametrize("policy", ["Balanced", "WhenEmptyOrUnderutilized"])
def test_buffer_keeps_its_room_and_what_it_gives_up_is_consolidated_at_once(policy: str) -> None:
    """Three spare pods need both half-empty machines; once one is enough, nobody waits for the next refresh."""

    async def main(world: World) -> None:
        await begin(world, consolidationPolicy=policy)
        await half_full(world, 2)
        await spare(world, 3)
        await hold(world, 400)
        assert len(await world.nodes()) == 2
        await world.api.patch(kinds.CAPACITY_BUFFER, "spare", {"spec": {"replicas": 1}}, "default")
        await nodes_left(world, 1, 45)
        await world.until_running("web", 2)

    story(main, settings=Settings(feature_gates=FeatureGates(capacity_buffer=True)))


@pytest.mark.promise("DIS-12.2")
def test_machine_whose_protection_ends_by_itself_is_looked_at_then() -> None:
    """Nothing else in the cluster changes at that moment."""

    async def main(world: World) -> None:
        await begin(world)
        await world.deployment("large", 2, cpu="3")
        await world.until_running("large", 2)
        await world.deployment("web", 2, cpu="500m")
        await world.until_running("web", 2)
        # A machine that may go but cannot: the search settles on it.
        await world.deployment("full", 1, cpu="3500m")
        await world.until_running("full", 1)
        ends = 0.0
        for pod in await world.pods("web"):
            patch = {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "7m"}}}
            await world.api.patch(kinds.POD, pod.name, patch, pod.namespace)
            ends = max(ends, parse_timestamp(pod.status.start_time or "") + 420)
        await world.scale("large", 0)
        await hold(world, ends - world.clock.now() - 1)
        assert len(await world.nodes()) == 3
        await nodes_left(world, 2, 45)

    story(main)
