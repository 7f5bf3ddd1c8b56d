"""Conditions change by fixed rules, so that tools written for Karpenter read them rightly."""

import pytest

from pykarpenter.api.meta import Condition, ObjectMeta, find_condition
from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.core.conditions import NODE_CLAIM, NODE_POOL, false, shorten, to_wire, transitions, true, unknown

CREATED = "2026-01-01T00:00:00Z"
NOW = parse_timestamp("2026-01-01T01:00:00Z")
META = ObjectMeta(name="p", generation=3, creation_timestamp=CREATED)
VALID, CLASS = true("ValidationSucceeded"), true("NodeClassReady")


def get(conditions, name):
    found = find_condition(conditions, name)
    assert found is not None
    return found


@pytest.mark.promise("API-1.3.1")
def test_plain_true_says_only_its_type():
    """Dashboards compare the reason with the type."""
    condition = get(NODE_POOL.apply([], META, NOW, VALID), "ValidationSucceeded")
    assert (condition.status, condition.reason, condition.message) == ("True", "ValidationSucceeded", "")


@pytest.mark.promise("API-1.3.2")
def test_missing_dependents_are_unknown_since_creation():
    """Time-outs count from the condition's transition, so it must exist from the beginning."""
    conditions = NODE_CLAIM.apply([], META, NOW)
    assert {(c.type, c.status, c.last_transition_time) for c in conditions} == {
        (name, "Unknown", CREATED) for name in ("Launched", "Registered", "Initialized", "Ready")
    }
    launched = get(conditions, "Launched")
    assert (launched.reason, launched.message) == ("AwaitingReconciliation", "object is awaiting reconciliation")


@pytest.mark.promise("API-1.3.3")
def test_transition_time_moves_only_with_the_status():
    """A repeated finding must not look like news; a new reason alone neither."""
    first = NODE_POOL.apply([], META, NOW, false("NodeClassReady", "NodeClassNotFound", "a"))
    second = NODE_POOL.apply(first, META, NOW + 60, false("NodeClassReady", "NodeClassTerminating", "b"))
    assert get(second, "NodeClassReady").last_transition_time == "2026-01-01T01:00:00Z"
    third = NODE_POOL.apply(second, META, NOW + 120, CLASS)
    assert get(third, "NodeClassReady").last_transition_time == "2026-01-01T01:02:00Z"


@pytest.mark.promise("API-1.3.3")
def test_written_conditions_carry_the_current_generation():
    """Readers tell a judgement of the current spec from an old one by it."""
    old = NODE_POOL.apply([], META, NOW, VALID)
    new = NODE_POOL.apply(old, ObjectMeta(generation=4, creation_timestamp=CREATED), NOW, CLASS)
    assert get(new, "NodeClassReady").observed_generation == 4
    assert get(new, "ValidationSucceeded").observed_generation == 3


@pytest.mark.promise("API-1.3.4")
def test_deleting_object_brings_every_condition_up_to_date():
    """Deletion raises the generation; conditions must not seem stale for it."""
    old = NODE_POOL.apply([], META, NOW, VALID, CLASS)
    deleting = ObjectMeta(generation=4, creation_timestamp=CREATED, deletion_timestamp="2026-01-01T02:00:00Z")
    assert {c.observed_generation for c in NODE_POOL.apply(old, deleting, NOW, CLASS)} == {4}


@pytest.mark.promise("API-1.3.5")
def test_ready_needs_every_dependent_at_the_current_generation():
    """A True about an older spec proves nothing."""
    ready = NODE_POOL.apply([], META, NOW, VALID, CLASS)
    assert get(ready, "Ready").status == "True"
    changed = NODE_POOL.apply(ready, ObjectMeta(generation=4, creation_timestamp=CREATED), NOW, CLASS)
    condition = get(changed, "Ready")
    assert (condition.status, condition.reason) == ("Unknown", "ReconcilingDependents")
    assert condition.message == "ValidationSucceeded=True"


@pytest.mark.promise("API-1.3.6")
def test_a_false_dependent_makes_ready_false_only_at_the_current_generation():
    """A fault of an older spec may be gone already."""
    broken = NODE_POOL.apply([], META, NOW, false("NodeClassReady", "X", "x"))
    assert (get(broken, "Ready").status, get(broken, "Ready").reason) == ("False", "UnhealthyDependents")
    edited = NODE_POOL.apply(broken, ObjectMeta(generation=4, creation_timestamp=CREATED), NOW, VALID)
    assert (get(edited, "Ready").status, get(edited, "Ready").reason) == ("Unknown", "ReconcilingDependents")


@pytest.mark.promise("API-1.3.7")
def test_ready_lists_what_is_wrong_newest_first():
    """The last thing that changed is the likeliest cause."""
    first = NODE_CLAIM.apply([], META, NOW, false("Registered", "MultipleNodesFound", ""))
    second = NODE_CLAIM.apply(first, META, NOW + 60, false("Launched", "X", ""))
    assert get(second, "Ready").message == "Launched=False, Registered=False, Initialized=Unknown"


@pytest.mark.promise("API-1.3.8")
def test_conditions_are_ordered_by_time_with_ready_last_and_by_name_after_a_removal():
    """kubectl describe shows them in this order."""
    first = NODE_CLAIM.apply([], META, NOW, true("Launched"))
    second = NODE_CLAIM.apply(first, META, NOW + 60, true("Consolidatable"))
    assert [c.type for c in second] == ["Initialized", "Registered", "Launched", "Consolidatable", "Ready"]
    cleared = NODE_CLAIM.apply(second, META, NOW + 90, clear=["Consolidatable"])
    assert [c.type for c in cleared] == ["Initialized", "Launched", "Ready", "Registered"]


@pytest.mark.promise("API-1.3.9")
def test_independent_condition_begins_now():
    """It did not hold since the object's creation."""
    conditions = NODE_CLAIM.apply([], META, NOW, true("Drifted", "NodePoolDrifted"))
    assert get(conditions, "Drifted").last_transition_time == "2026-01-01T01:00:00Z"
    assert "Drifted" not in get(conditions, "Ready").message


@pytest.mark.promise("API-1.3.10")
def test_only_a_change_of_status_is_a_transition():
    """Events for every new message would drown the ones that matter."""
    first = NODE_CLAIM.apply([], META, NOW, true("Rebooting", "RebootRequested"))
    second = NODE_CLAIM.apply(first, META, NOW, true("Rebooting", "RebootIssued"))
    assert transitions(first, second) == []
    third = NODE_CLAIM.apply(second, META, NOW, false("Rebooting", "RebootSucceeded", ""))
    assert [(t.previous.status, t.condition.status) for t in transitions(second, third)] == [("True", "False")]
    assert all(t.previous is None for t in transitions([], first))


def test_unchanged_findings_give_the_same_list():
    """The caller leaves the write out; a controller that always wrote would wake itself for ever."""
    first = NODE_POOL.apply([], META, NOW, VALID, CLASS)
    assert NODE_POOL.apply(first, META, NOW + 600, VALID, CLASS) == first


def test_wire_form_keeps_empty_messages():
    """The schema requires reason and message even when they are empty."""
    written = to_wire([Condition(type="X", status="True", reason="X", last_transition_time=CREATED)])
    assert written == [{"type": "X", "status": "True", "reason": "X", "message": "", "lastTransitionTime": CREATED}]


def test_long_messages_are_cut():
    """Providers put whole API answers into errors."""
    assert shorten("x" * 1024) == "x" * 1024
    assert shorten("x" * 1025) == "x" * 1021 + "..."
    assert len(unknown("Launched", "LaunchFailed", "y" * 5000).message) == 1024
