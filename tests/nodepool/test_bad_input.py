"""Rows of the bad-input catalogue about NodePools: a refusal, or a condition and an event, never an exception."""

import asyncio

import pytest

from pykarpenter.api import kinds, labels
from pykarpenter.kube.errors import Invalid
from pykarpenter.runtime import logs
from tests.crds.bad_pools import REFUSED, bad_pool
from tests.nodepool.world import CLASS_REF, in_world

SETTLE_S = 3.0


def need(key, operator, *values, **more):
    return {"key": key, "operator": operator, "values": list(values), **more}


def told(world, reason):
    return [message for _, _, found, message in world.recorded.events if found == reason]


@pytest.mark.promise("API-1.4.4", "API-1.1.7")
@pytest.mark.parametrize("schedule", ["@dailyx", "a b c d e"])
def test_b1_unreadable_budget_is_a_condition_and_an_event_but_the_pool_stays_ready(schedule):
    """Launching must go on; only disruption stops."""

    async def story(world):
        budget = {"nodes": "1", "schedule": schedule, "duration": "1h"}
        await world.pool(disruption={"budgets": [budget]})
        await asyncio.sleep(SETTLE_S)
        condition = await world.condition("BudgetsParsed")
        assert (condition.status, condition.reason) == ("False", "InvalidBudgets")
        assert "spec.disruption.budgets[0].schedule" in condition.message and schedule in condition.message
        assert len(told(world, "InvalidBudgets")) == 1
        assert (await world.condition("Ready")).status == "True"
        fixed = {"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}}
        await world.api.patch(kinds.NODE_POOL, "p", fixed)
        await asyncio.sleep(SETTLE_S)
        assert await world.condition("BudgetsParsed") is None

    in_world(story)


@pytest.mark.parametrize(("row", "fields", "field"), REFUSED)
def test_b2_b3_b5_b7_b10_b12_bad_pools_are_refused_at_admission(row, fields, field):
    """Each with the field, and the index in lists; a real API server names the same."""

    async def refused(world):
        with pytest.raises(Invalid) as caught:
            await world.api.create(kinds.NODE_POOL, bad_pool(fields))
        return [cause["field"] for cause in caught.value.details["causes"]]

    assert field in in_world(refused), row


def test_b6_min_values_that_no_catalogue_meets_is_a_condition():
    """Found and wanted are counted; the pool stays ready, since BestEffort may still launch."""

    async def story(world):
        await world.pool(requirements=[need("kubernetes.io/arch", "Exists", minValues=5)])
        await asyncio.sleep(SETTLE_S)
        condition = await world.condition("InstanceTypesFound")
        assert (condition.status, condition.reason) == ("False", "MinValuesNotMet")
        assert "asks for 5 values of kubernetes.io/arch" in condition.message
        assert "offer 2: amd64, arm64" in condition.message
        assert told(world, "NoCompatibleInstanceTypes") == [condition.message]
        assert (await world.condition("Ready")).status == "True"

    in_world(story)


@pytest.mark.promise("API-1.4.2")
def test_b8_duplicate_taint_makes_the_pool_not_ready_and_names_both():
    """An API server cannot compare two lists; the controller does."""

    async def story(world):
        taint = {"key": "example.com/a", "effect": "NoSchedule"}
        await world.pool(taints=[taint], startupTaints=[taint])
        await asyncio.sleep(SETTLE_S)
        condition = await world.condition("ValidationSucceeded")
        assert (condition.status, condition.reason) == ("False", "NodePoolValidationFailed")
        assert "example.com/a:NoSchedule" in condition.message
        assert "spec.template.spec.taints[0]" in condition.message
        assert told(world, "NodePoolValidationFailed") == [condition.message]
        ready = await world.condition("Ready")
        assert (ready.status, ready.reason, ready.message) == (
            "False",
            "UnhealthyDependents",
            "ValidationSucceeded=False",
        )

    in_world(story)


@pytest.mark.promise("API-1.4.4")
def test_b9_contradicting_requirements_name_the_one_that_empties_the_list():
    """With what the remaining types would have had to offer."""

    async def story(world):
        zone = "topology.kubernetes.io/zone"
        arms = need("kubernetes.io/arch", "In", "arm64")
        await world.pool(requirements=[arms, need(zone, "In", "mars-1"), need("kubernetes.io/os", "Exists")])
        await asyncio.sleep(SETTLE_S)
        condition = await world.condition("InstanceTypesFound")
        assert (condition.status, condition.reason) == ("False", "NoCompatibleInstanceTypes")
        assert condition.message == (
            f"spec.template.spec.requirements[1]: {zone} In [mars-1] leaves none of the 72 instance types that the "
            "requirements before it allow; they have test-zone-a, test-zone-b, test-zone-c, test-zone-d"
        )
        assert (await world.condition("Ready")).status == "True"
        await world.api.patch(kinds.NODE_POOL, "p", {"spec": {"template": {"spec": {"requirements": [arms]}}}})
        await asyncio.sleep(SETTLE_S)
        assert await world.condition("InstanceTypesFound") is None

    in_world(story)


def test_b10_negative_limit_makes_the_pool_not_ready():
    """The schema's pattern allows a sign, so the controller refuses."""

    async def story(world):
        await world.pool(limits={"cpu": "-4"})
        await asyncio.sleep(SETTLE_S)
        condition = await world.condition("ValidationSucceeded")
        assert condition.status == "False"
        assert condition.message.startswith('spec.limits.cpu: invalid value "-4"')

    in_world(story)


def test_b10_limit_on_an_unknown_resource_warns_that_it_never_binds():
    """The pool works, the limit does not."""

    async def story(world):
        await world.pool(limits={"cpus": "4"})
        await asyncio.sleep(SETTLE_S)
        assert (await world.condition("Ready")).status == "True"
        (message,) = told(world, "NodePoolWarning")
        assert "spec.limits.cpus" in message and "never binds" in message

    in_world(story)


@pytest.mark.parametrize("fields", [{"expireAfter": "0s"}, {"disruption": {"consolidateAfter": "5s"}}])
def test_b11_churn_is_warned_of_and_allowed(fields):
    """It is the user's money; the warning comes once, not with every pass."""

    async def story(world):
        await world.pool(**fields)
        await asyncio.sleep(600)
        assert len(told(world, "NodePoolWarning")) == 1
        assert (await world.condition("Ready")).status == "True"

    in_world(story)


def test_template_duration_beyond_go_makes_the_pool_not_ready_and_fails_nothing():
    """The pattern allows any number. The mistake is told once, where the user looks, not with every retry."""

    async def story(world):
        lines = []
        logs.configure("error", clock=world.clock, commit="", write=lines.append)
        await world.pool(expireAfter="99999999999999999h")
        await asyncio.sleep(60)
        condition = await world.condition("ValidationSucceeded")
        assert condition.status == "False"
        assert condition.message.startswith("spec.template.spec.expireAfter: ")
        assert "longer than 2562047h" in condition.message
        await world.api.patch(kinds.NODE_POOL, "p", {"spec": {"template": {"spec": {"expireAfter": "1h"}}}})
        await asyncio.sleep(SETTLE_S)
        assert lines == []
        assert labels.NODEPOOL_HASH in (await world.seen()).metadata.annotations

    try:
        in_world(story)
    finally:
        logs.silence()


def test_b12_switching_replicas_on_or_off_is_refused():
    """Static and dynamic pools are different things."""

    async def story(world):
        await world.pool("static", replicas=1)
        await world.pool("dynamic")
        for name, patch in (("static", {"replicas": None}), ("dynamic", {"replicas": 2})):
            with pytest.raises(Invalid, match="replicas cannot be added or removed"):
                await world.api.patch(kinds.NODE_POOL, name, {"spec": patch})

    in_world(story)


@pytest.mark.promise("API-1.4.3")
def test_b13_missing_class_makes_the_pool_not_ready_until_it_appears():
    """Order of creation must not matter."""

    async def story(world):
        await world.pool(nodeClassRef=CLASS_REF | {"name": "later"})
        await asyncio.sleep(SETTLE_S)
        condition = await world.condition("NodeClassReady")
        assert (condition.status, condition.reason) == ("False", "NodeClassNotFound")
        assert 'KWOKNodeClass "later"' in condition.message
        await world.api.create(kinds.KWOK_NODE_CLASS, {"metadata": {"name": "later"}})
        await asyncio.sleep(SETTLE_S)
        assert (await world.condition("Ready")).status == "True"

    in_world(story)


def test_b13_unknown_kind_of_the_providers_own_group_is_told():
    """Nobody else will ever serve it, so silence would be a riddle."""

    async def story(world):
        await world.pool(nodeClassRef=CLASS_REF | {"kind": "KwokNodeClass"})
        await asyncio.sleep(SETTLE_S)
        condition = await world.condition("NodeClassReady")
        assert (condition.status, condition.reason) == ("False", "NodeClassNotFound")
        assert 'no kind "KwokNodeClass"' in condition.message and "KWOKNodeClass" in condition.message
        assert (await world.condition("Ready")).status == "False"

    in_world(story)


@pytest.mark.promise("API-4.8")
def test_b13_class_of_a_foreign_kind_leaves_the_pool_alone_and_not_ready():
    """Another controller may serve it; writing its status would be a fight."""

    async def story(world):
        await world.pool(nodeClassRef={"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "x"})
        await asyncio.sleep(SETTLE_S)
        pool = await world.seen()
        assert pool.status.conditions == [] and pool.metadata.annotations == {}

    in_world(story)


@pytest.mark.promise("API-1.4.3")
def test_b14_class_being_deleted_makes_the_pool_not_ready_and_lists_the_claims():
    """Whoever waits for the deletion sees what it waits for."""

    async def story(world):
        finalizers = {"metadata": {"finalizers": ["example.com/hold"]}}
        await world.api.patch(kinds.KWOK_NODE_CLASS, "default", finalizers)
        await world.pool()
        await world.claim("one", pool="p")
        await world.claim("two", pool="p")
        await world.api.delete(kinds.KWOK_NODE_CLASS, "default")
        await asyncio.sleep(SETTLE_S)
        condition = await world.condition("NodeClassReady")
        assert (condition.status, condition.reason) == ("False", "NodeClassTerminating")
        assert condition.message.endswith("waits for NodeClaims: one, two")

    in_world(story)
