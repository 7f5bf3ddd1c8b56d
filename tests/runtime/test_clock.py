"""F40: what is decided by age goes by the server's time, whatever happens to the clock of the machine."""

from __future__ import annotations

import pytest

from pykarpenter.runtime.clock import SteadyClock


class Machine:
    """A machine whose wall clock can be set."""

    def __init__(self, wall: float = 1_000_000.0) -> None:
        self.wall, self.elapsed = wall, 50.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.elapsed

    def pass_time(self, seconds: float, rate: float = 1.0) -> None:
        self.elapsed += seconds
        self.wall += seconds * rate


@pytest.mark.parametrize("jump_s", [600.0, -600.0])
def test_f40_a_clock_that_jumps_changes_no_age(jump_s: float) -> None:
    """An administrator or NTP sets the clock; nothing is ten minutes older for it."""
    machine = Machine()
    clock = SteadyClock(machine)
    machine.pass_time(100)
    machine.wall += jump_s
    assert clock.now() == 1_000_100.0
    machine.pass_time(100)
    assert clock.now() == 1_000_200.0
    machine.wall -= jump_s
    assert clock.now() == 1_000_200.0


def test_f40_a_clock_that_drifts_is_held() -> None:
    """An hour of a clock that runs a tenth too fast is an hour, give or take two seconds."""
    machine = Machine()
    clock = SteadyClock(machine)
    for _ in range(3600):
        machine.pass_time(1, rate=1.1)
        assert abs(clock.now() - 1_000_000.0 - (machine.elapsed - 50.0)) <= 2.2


def test_f40_a_clock_that_was_wrong_from_the_start_follows_the_server() -> None:
    """And when the machine is corrected later, that is one more jump that changes nothing."""
    machine = Machine(wall=1_000_600.0)
    clock = SteadyClock(machine)
    clock.follow(1_000_000.0)
    assert clock.now() == 1_000_000.0
    machine.pass_time(60)
    machine.wall -= 600.0
    assert clock.now() == 1_000_060.0
    clock.follow(1_000_060.9)
    assert clock.now() == 1_000_060.0, "whole seconds of a header move nothing"


def test_a_clock_that_is_right_is_left_alone_to_the_last_bit() -> None:
    """Simulations repeat bit for bit."""
    machine = Machine(wall=1_767_225_600.1)
    clock = SteadyClock(machine)
    machine.pass_time(0.3)
    assert clock.now() == machine.now()
