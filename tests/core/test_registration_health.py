"""Registration health is a window of four results."""

import pytest

from pykarpenter.api.meta import Condition, ObjectMeta
from pykarpenter.api.nodepool import NodePool, NodePoolStatus
from pykarpenter.core.registration_health import CONDITION, Registration, RegistrationHistory, needs_reset, verdict

OK, BAD = Registration(True), Registration(False, "LaunchFailed", "no permission")


def after(*results, start=()):
    history = RegistrationHistory()
    for result in (*start, *results):
        history.record("u", result)
    found = verdict(history, "u")
    return None if found is None else found.status


def pool(status, generation=1, observed=1, class_generation=1):
    conditions = [Condition(type=CONDITION, status=status, observed_generation=observed)] if status else []
    return NodePool(
        metadata=ObjectMeta(uid="u", generation=generation),
        status=NodePoolStatus(conditions=conditions, node_class_observed_generation=class_generation),
    )


@pytest.mark.promise("API-4.3", "API-4.4")
@pytest.mark.parametrize(
    ("results", "status"),
    [
        ((), None),
        ((OK,), "True"),
        ((BAD,), None),
        ((BAD, BAD), "False"),
        ((BAD, OK), "True"),
        ((BAD, BAD, OK), None),
        ((BAD, BAD, OK, OK), None),
        ((BAD, BAD, OK, OK, OK), "True"),
        ((OK, OK, OK, BAD), None),
        ((OK, OK, BAD, OK, BAD), "False"),
    ],
)
def test_last_result_decides_within_the_window(results, status):
    """One bad machine is an accident, half of the window is the pool."""
    assert after(*results) == status


@pytest.mark.promise("API-4.5")
@pytest.mark.parametrize(("status", "next_failure"), [("True", None), ("False", "False"), ("Unknown", None)])
def test_restart_remembers_what_the_condition_says(status, next_failure):
    """Results live in memory; the verdict does not."""
    history = RegistrationHistory()
    history.seed(pool(status))
    history.record("u", BAD)
    found = verdict(history, "u")
    assert (None if found is None else found.status) == next_failure


@pytest.mark.promise("API-4.5")
def test_seeding_does_not_overwrite_results():
    """A late seed must not forgive failures."""
    history = RegistrationHistory()
    history.record("u", BAD)
    history.record("u", BAD)
    history.seed(pool("True"))
    assert not history.is_healthy("u")


@pytest.mark.promise("API-4.6")
@pytest.mark.parametrize(
    ("candidate", "reset"),
    [
        (pool(""), True),
        (pool("True"), False),
        (pool("True", generation=2), True),
        (pool("False", class_generation=0), True),
    ],
)
def test_window_starts_anew_with_another_template_or_class(candidate, reset):
    """What failed before may work now."""
    assert needs_reset(candidate, 1) is reset


def test_failure_names_the_failing_claims_reason():
    """The pool's owner looks at the pool first."""
    history = RegistrationHistory()
    history.record("u", BAD)
    history.record("u", BAD)
    found = verdict(history, "u")
    assert (found.reason, found.message) == ("LaunchFailed", "no permission")
