"""Workloads whose new machines somebody takes away: free at first, then slower, and never for ordinary removals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.controllers.provisioning.losses import FREE_ROUNDS, LONGEST_WAIT_S, Losses, taken_away
from pykarpenter.core.reasons import Why

NOW = 1_800_000_000.0


def no(_: str) -> bool:
    return False


def claim(age_s: float = 60.0, *, deleting: bool = False, reason: str = "", expire_after: str = "720h") -> NodeClaim:
    metadata: dict[str, Any] = {"name": "c", "creationTimestamp": format_timestamp(NOW - age_s)}
    if deleting:
        metadata["deletionTimestamp"] = format_timestamp(NOW)
    conditions = [{"type": "DisruptionReason", "status": "True", "reason": reason}] if reason else []
    body = {"metadata": metadata, "spec": {"expireAfter": expire_after}, "status": {"conditions": conditions}}
    return msgspec.convert(body, NodeClaim)


def test_f1_workload_waits_only_after_several_rounds_and_never_longer_than_a_minute() -> None:
    """Deleting new machines a few times by hand costs nobody a second."""
    losses, now = Losses(), NOW
    for _ in range(FREE_ROUNDS):
        losses.note(["web"], now, no)
        assert losses.hold("web", now) is None
        now += 30
    waits = []
    for _ in range(8):
        losses.note(["web"], now, no)
        held = losses.hold("web", now)
        assert held is not None
        assert held.why is Why.LAUNCH_BACK_OFF
        waits.append(next(s for s in range(200) if losses.hold("web", now + s) is None))
        now += 90
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (2, LONGEST_WAIT_S)
    assert losses.hold("other", now) is None


def test_many_machines_that_go_at_the_same_time_are_one_round() -> None:
    """Somebody deletes a whole pool: its pods must not wait."""
    losses = Losses()
    for machine in range(200):
        losses.note(["web"], NOW + machine * 0.04, no)
    assert losses.hold("web", NOW + 8) is None


def test_losses_far_apart_are_no_row() -> None:
    """A machine that dies every quarter of an hour is bad luck."""
    losses = Losses()
    for turn in range(20):
        losses.note(["web"], NOW + turn * 900, no)
        assert losses.hold("web", NOW + turn * 900) is None


def test_workload_with_a_machine_that_lives_never_waits() -> None:
    """Its other machines show that machines can serve it."""
    losses = Losses()
    for turn in range(30):
        losses.note(["web"], NOW + turn * 20, lambda _: True)
        assert losses.hold("web", NOW + turn * 20) is None


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (claim(), claim(deleting=True), True),
        (claim(), None, True),
        (None, claim(deleting=True), False),
        (claim(deleting=True), None, False),
        (claim(), claim(), False),
        (claim(age_s=3600), claim(age_s=3600, deleting=True), False),
        (claim(), claim(deleting=True, reason="Drifted"), False),
        (claim(age_s=90, expire_after="1m"), claim(age_s=90, deleting=True, expire_after="1m"), False),
    ],
)
def test_only_removals_of_new_machines_by_others_count(
    before: NodeClaim | None, after: NodeClaim | None, counts: bool
) -> None:
    """What disruption or expiration took away was taken on purpose."""
    assert taken_away(before, after, NOW) is counts
