"""What a benchmark reports: measured values with their targets, and how fast this machine is."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value. `target` is a bound: an upper one, or a lower one where `higher_is_better`.

    `cpu_bound` values are judged as if measured on the reference machine; others as they are.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    higher_is_better: bool = False
    cpu_bound: bool = True
    note: str = ""

    def scaled(self, speed: float) -> float:
        """The value on the reference machine, when this one is `speed` times as fast."""
        if not self.cpu_bound:
            return self.value
        return self.value / speed if self.higher_is_better else self.value * speed

    def passes(self, speed: float) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.target is None:
            return None
        value = self.scaled(speed)
        return value >= self.target if self.higher_is_better else value <= self.target


# Seconds that `_calibration_loop` takes on the machine that the targets were set on (2 vCPU AMD EPYC, CPython 3.11).
REFERENCE_S = 0.037


def _calibration_loop() -> float:
    started = time.process_time()
    table: dict[int, str] = {}
    for number in range(400_000):
        table[number & 4095] = str(number)
    assert len(table) == 4096
    return time.process_time() - started


def machine_speed() -> float:
    """How many times as fast as the reference machine this one is now: the best of five short loops."""
    return REFERENCE_S / min(_calibration_loop() for _ in range(5))
