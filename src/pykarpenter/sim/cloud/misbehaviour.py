"""How the cloud misbehaves: each failure is armed by a test or a fault runner and says when it really happened.

Counters, not chances: a fault that is armed for two calls fails exactly the next two that it applies to.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from pykarpenter.cloud.errors import CloudError
from pykarpenter.cloud.provider import Interruption

# Libraries have been seen to put the headers of a request into their errors; nobody may publish them (S14).
CANARY = "canary0123456789abcdef"
_HEADERS = f"(request headers: Authorization: Bearer {CANARY})"


_LATE_S = 60.0


class Throttled(CloudError):
    """The cloud asks to slow down; nothing is known about capacity."""


class Denied(CloudError):
    """The cloud refuses the action to these credentials."""

    def __init__(self, action: str) -> None:
        super().__init__(f"not authorized to perform {action}; grant it to the controller's role {_HEADERS}")
        self.action = action


class ReplyLost(CloudError):
    """The call may or may not have done its work."""


@dataclass(slots=True)
class Misbehaviour:
    """What is armed now. Numbers count down as the faults fire; `fired` counts what happened, by name."""

    throttle: int = 0
    throttle_after_success: int = 0
    lose_launch_replies: int = 0
    ignore_deletes: int = 0
    short_lists: int = 0
    stale_lists: int = 0
    boot_failures: int = 0
    # The zone that a launch would like best runs out of addresses, until the market is restocked.
    exhausted_subnets: int = 0
    denied: dict[str, None] = field(default_factory=dict)
    # Machines with one of these images start and never join the cluster.
    broken_images: dict[str, None] = field(default_factory=dict)
    # What the queue of announcements does with them: duplicate, delay, reorder or disappear.
    queue: str = ""
    late_devices_s: float = 0.0
    fired: Counter[str] = field(default_factory=Counter)

    def take(self, name: str) -> bool:
        """Whether the fault fires now; uses up one of its armed occasions."""
        left = int(getattr(self, name))
        if left <= 0:
            return False
        setattr(self, name, left - 1)
        self.fired[name] += 1
        return True

    def check(self, action: str) -> None:
        """Raises what an armed throttle or denial means for a call."""
        if action in self.denied:
            self.fired["denied"] += 1
            raise Denied(action)
        if self.take("throttle"):
            raise Throttled(f"{action}: request limit exceeded {_HEADERS}")

    def garbled(self, messages: list[Interruption], now: float) -> list[Interruption]:
        """Announcements as a bad queue tells them; half of the notice is over before a late one comes."""
        answers = {
            "duplicate": [*messages, *(replace(m, id=f"{m.id}-again") for m in messages)],
            "delay": [m for m in messages if m.at is None or m.at - now <= _LATE_S],
            "reorder": messages[::-1],
        }
        if self.queue == "disappear":
            self.fired["queue"] += 1
            raise CloudError("the queue does not exist")
        answer = answers.get(self.queue, messages)
        if answer != messages:
            self.fired["queue"] += 1
        return answer

    def calm(self) -> None:
        """Stop misbehaving; what has fired stays counted."""
        for name in ("throttle", "throttle_after_success", "lose_launch_replies", "ignore_deletes", "short_lists"):
            setattr(self, name, 0)
        self.stale_lists = self.boot_failures = self.exhausted_subnets = 0
        self.denied.clear()
        self.broken_images.clear()
        self.queue = ""
        self.late_devices_s = 0.0
