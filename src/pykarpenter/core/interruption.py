"""What an announced interruption of a machine asks for, as a table from the cloud's reason to an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether the machine is given up, whether its pods get no time at all, and how it is counted and said."""

    metric: str
    event: str
    gives_up: bool = True
    forceful: bool = False


ANSWERS: Mapping[str, Answer] = {
    "SpotInterruption": Answer("spot_interrupted", "SpotInterrupted"),
    "CapacityReservationInterruption": Answer(
        "capacity_reservation_interrupted", "CapacityReservationInstanceInterrupted"
    ),
    "ScheduledChange": Answer("scheduled_change", "InstanceUnhealthy"),
    "InstanceStopping": Answer("instance_stopped", "InstanceStopping"),
    "InstanceTerminating": Answer("instance_terminated", "InstanceTerminating"),
    "InstanceStatusFailure": Answer("instance_status", "InstanceUnhealthy", forceful=True),
    "RebalanceRecommendation": Answer("rebalance_recommendation", "SpotRebalanceRecommendation", gives_up=False),
}


def answer_to(reason: str) -> Answer | None:
    """None for a reason we do not know: nothing is given up on a message nobody understands."""
    return ANSWERS.get(reason)
