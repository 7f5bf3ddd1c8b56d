"""A NodeClaim's phases, and what is read off a claim and its Node."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.api.meta import Condition, ObjectMeta, OwnerReference
from pykarpenter.api.nodepool import ClaimResources, NodeClaim, NodeClaimSpec, NodeClaimStatus
from pykarpenter.api.nodes import Node, NodeSpec, NodeStatus, Taint
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.core import lifecycle, termination
from pykarpenter.core.lifecycle import Fact, Phase

NOW = 1_767_225_600.0
UNREGISTERED = Taint(key=labels.UNREGISTERED_TAINT, effect="NoExecute")


def claim(conditions: dict[str, str] | None = None, created: float = NOW, **spec: object) -> NodeClaim:
    listed = [
        Condition(type=kind, status=status, last_transition_time=format_timestamp(created))
        for kind, status in (conditions or {}).items()
    ]
    return NodeClaim(
        metadata=ObjectMeta(
            name="c",
            uid="uid-c",
            creation_timestamp=format_timestamp(created),
            labels={"team": "claim", labels.NODEPOOL: "p"},
            annotations={"note": "claim"},
        ),
        spec=NodeClaimSpec(**spec),
        status=NodeClaimStatus(conditions=listed),
    )


def node(taints: list[Taint] | None = None, ready: str = "True", **meta: object) -> Node:
    return Node(
        metadata=ObjectMeta(name="n", **meta),
        spec=NodeSpec(provider_id="kwok://n", taints=taints or []),
        status=NodeStatus(conditions=[Condition(type="Ready", status=ready)], allocatable={"cpu": "4"}),
    )


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ({}, Phase.LAUNCHING),
        ({"Launched": "Unknown"}, Phase.LAUNCHING),
        ({"Launched": "True"}, Phase.REGISTERING),
        ({"Launched": "True", "Registered": "False"}, Phase.AMBIGUOUS),
        ({"Launched": "True", "Registered": "True"}, Phase.INITIALIZING),
        ({"Launched": "True", "Registered": "True", "Initialized": "True"}, Phase.READY),
        ({"Launched": "True", "Registered": "True", "Initialized": "Unknown", "Rebooting": "True"}, Phase.REBOOTING),
    ],
)
def test_a_phase_is_read_off_the_conditions(conditions: dict[str, str], phase: Phase) -> None:
    """Nothing is remembered beside the object, so a restart continues where the last process stopped."""
    assert lifecycle.phase_of(claim(conditions)) is phase


def test_every_phase_can_be_reached_and_left() -> None:
    """A phase without a way in or out would be a trap; only a claim given up ends here."""
    reached = {Phase.LAUNCHING} | {step.phase for step in lifecycle.LIFECYCLE.values()}
    left = {phase for phase, _ in lifecycle.LIFECYCLE}
    assert reached == set(Phase)
    assert set(Phase) - left == {Phase.GIVEN_UP}
    assert {phase for phase, _ in termination.NODE_TERMINATION} == set(termination.NodePhase) - {
        termination.NodePhase.RELEASED
    }
    assert {phase for phase, _ in termination.CLAIM_TERMINATION} == set(termination.ClaimPhase) - {
        termination.ClaimPhase.RELEASED
    }


def test_every_fact_leads_somewhere() -> None:
    """A fact that no table knows could only ever be dropped."""
    assert {fact for _, fact in lifecycle.LIFECYCLE} == set(Fact)
    assert {fact for _, fact in termination.NODE_TERMINATION} == set(termination.NodeFact)
    assert {fact for _, fact in termination.CLAIM_TERMINATION} == set(termination.ClaimFact)


def test_an_impossible_step_is_a_defect_and_not_a_guess() -> None:
    """A ready machine is never launched again."""
    with pytest.raises(lifecycle.InvariantBroken, match="Ready cannot observe InstanceLaunched"):
        lifecycle.step(Phase.READY, Fact.INSTANCE_LAUNCHED)
    with pytest.raises(lifecycle.InvariantBroken):
        termination.node_step(termination.NodePhase.DRAINING, termination.NodeFact.INSTANCE_GONE)
    with pytest.raises(lifecycle.InvariantBroken):
        termination.claim_step(termination.ClaimPhase.AWAITING_NODES, termination.ClaimFact.INSTANCE_GONE)


@pytest.mark.promise("API-3.2.13")
def test_liveness_counts_each_wait_from_its_own_condition() -> None:
    """A machine that launched late still gets its time to register."""
    launching = claim({"Launched": "Unknown"})
    assert lifecycle.check_liveness(launching, NOW + 299).check_after_s == 1
    overdue = lifecycle.check_liveness(launching, NOW + 300).overdue
    assert overdue is not None
    assert lifecycle.step(Phase.LAUNCHING, overdue.fact).give_up == "launch_timeout"
    registering = claim({"Launched": "True", "Registered": "Unknown"})
    assert lifecycle.check_liveness(registering, NOW + 899).overdue is None
    overdue = lifecycle.check_liveness(registering, NOW + 900).overdue
    assert overdue is not None
    assert lifecycle.step(Phase.REGISTERING, overdue.fact).give_up == "registration_timeout"
    assert lifecycle.check_liveness(claim({"Launched": "True", "Registered": "True"}), NOW + 9999).overdue is None


@pytest.mark.promise("API-3.2.6")
def test_launched_metadata_keeps_the_claims_labels_and_takes_the_providers_annotations() -> None:
    """The plan's labels are what pods were placed by; annotations are the provider's records."""
    launched = NodeClaim(metadata=ObjectMeta(labels={"team": "cloud", "zone": "a"}, annotations={"note": "cloud"}))
    merged = lifecycle.merge_launch(claim(), launched)
    assert merged.labels == {"team": "claim", "zone": "a", labels.NODEPOOL: "p"}
    assert merged.annotations == {"note": "cloud"}


@pytest.mark.promise("API-3.2.8")
def test_registration_brings_the_claims_metadata_to_the_node() -> None:
    """Scheduling reads the Node, so what the plan assumed must be true there."""
    asked = claim(
        taints=[Taint(key="a", value="claim", effect="NoSchedule")],
        startup_taints=[Taint(key="boot", effect="NoExecute")],
    )
    present = [UNREGISTERED, Taint(key="a", value="node", effect="NoSchedule")]
    sync = lifecycle.sync_node(asked, node(present, labels={"team": "node", "os": "linux"}), complete=True)
    assert [(t.key, t.value) for t in sync.taints] == [("a", "node"), ("boot", "")]
    assert sync.labels == {"team": "claim", "os": "linux", labels.NODEPOOL: "p", labels.REGISTERED: "true"}
    assert sync.annotations == {"note": "claim"}
    assert sync.finalizers == [labels.TERMINATION_FINALIZER]
    assert not sync.owned
    assert not sync.taint_missing


@pytest.mark.promise("API-3.2.9")
def test_a_node_may_keep_its_own_taints() -> None:
    """Some machines arrive with their taints from elsewhere."""
    own = node([UNREGISTERED], labels={labels.DO_NOT_SYNC_TAINTS: "true"})
    assert lifecycle.sync_node(claim(taints=[Taint(key="a", effect="NoSchedule")]), own, complete=True).taints == []


@pytest.mark.promise("API-3.2.11")
def test_an_incomplete_registration_keeps_the_unregistered_taint() -> None:
    """Hooks that have not passed must keep workload away."""
    sync = lifecycle.sync_node(claim(), node([UNREGISTERED]), complete=False)
    assert sync.taints == [UNREGISTERED]
    assert labels.REGISTERED not in sync.labels


def test_a_registered_node_gets_no_taint_back_after_a_crash() -> None:
    """The Node was registered but the claim's status was lost: a removed startup taint must stay removed."""
    asked = claim(startup_taints=[Taint(key="boot", effect="NoExecute")])
    known = node(labels={labels.REGISTERED: "true"}, owner_references=[OwnerReference(uid="uid-c")])
    sync = lifecycle.sync_node(asked, known, complete=True)
    assert sync.taints == []
    assert sync.owned
    assert not sync.taint_missing


@pytest.mark.promise("API-3.2.10")
def test_a_node_without_the_unregistered_taint_is_noticed() -> None:
    """Pods may have been bound before the claim's taints arrived."""
    assert lifecycle.sync_node(claim(), node(), complete=True).taint_missing


@pytest.mark.promise("API-3.2.12")
def test_initialization_gates_come_in_order() -> None:
    """The first thing missing is named; the rest would only be noise."""
    asked = claim(
        startup_taints=[Taint(key="boot", effect="NoExecute")],
        resources=ClaimResources(requests={"cpu": "1", "nvidia.com/gpu": "1", "memory": "0"}),
    )
    boot = Taint(key="boot", effect="NoExecute")
    not_ready = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
    agent = Taint(key="readiness.k8s.io/network", effect="NoSchedule")
    assert lifecycle.observe_initialization(asked, None).fact is Fact.NODE_MISSING
    assert lifecycle.observe_initialization(asked, node([boot, not_ready], "False")).fact is Fact.NODE_NOT_READY
    assert lifecycle.observe_initialization(asked, node([not_ready, boot])).fact is Fact.STARTUP_TAINTS
    assert lifecycle.observe_initialization(asked, node([not_ready])).fact is Fact.EPHEMERAL_TAINTS
    assert lifecycle.observe_initialization(asked, node([agent])).fact is Fact.EPHEMERAL_TAINTS
    gpu = lifecycle.observe_initialization(asked, node())
    assert gpu.fact is Fact.RESOURCE_MISSING
    assert "nvidia.com/gpu" in gpu.message
    plain = claim(resources=ClaimResources(requests={"cpu": "1"}))
    assert lifecycle.observe_initialization(plain, node(), ["gpu.example.com"]).fact is Fact.DRIVERS_MISSING
    assert lifecycle.observe_initialization(plain, node()).fact is Fact.NODE_INITIALIZED


@pytest.mark.promise("API-3.3.1")
def test_the_deadline_is_stamped_once_and_from_the_deletion_time() -> None:
    """An earlier stamp, by repair for instance, must not be loosened."""
    plain = claim(termination_grace_period="1h")
    assert lifecycle.wanted_deadline(plain) is None
    deleting = NodeClaim(
        metadata=ObjectMeta(name="c", deletion_timestamp=format_timestamp(NOW)),
        spec=NodeClaimSpec(termination_grace_period="1h"),
    )
    assert lifecycle.wanted_deadline(deleting) == NOW + 3600
    stamped = NodeClaim(
        metadata=ObjectMeta(
            name="c",
            deletion_timestamp=format_timestamp(NOW),
            annotations={labels.TERMINATION_TIMESTAMP: format_timestamp(NOW + 5)},
        ),
        spec=NodeClaimSpec(termination_grace_period="1h"),
    )
    assert lifecycle.wanted_deadline(stamped) is None
    assert lifecycle.termination_deadline(stamped) == NOW + 5
