"""Durations are read and written as Go does it."""

import pytest

from pykarpenter.api.duration import (
    InvalidDuration,
    format_duration,
    parse_duration,
    parse_duration_ns,
    parse_nillable_duration,
)

HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("0s", 0),
        ("1ns", 1),
        ("1us", 10**3),
        ("1µs", 10**3),
        ("1μs", 10**3),
        ("1ms", 10**6),
        ("1.5h", HOUR_NS * 3 // 2),
        (".5s", 5 * 10**8),
        ("1.s", 10**9),
        ("1h1h", 2 * HOUR_NS),
        ("1m30s", 90 * 10**9),
        ("+1h", HOUR_NS),
        ("-1.5h", -HOUR_NS * 3 // 2),
        ("0.3ns", 0),
        ("2562047h47m16.854775807s", 2**63 - 1),
        ("-2562047h47m16.854775808s", -(2**63)),
    ],
)
def test_go_durations_are_read_exactly(text, nanoseconds):
    """The NodePool hash is taken over this number."""
    assert parse_duration_ns(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "s", ".s", "1", "1.", "1d", "1 h", "1H", "1h-1m", "1h30", "1e3s", "1_0s", "Never", "１h", "١s", "1h\n"]
)
def test_anything_else_is_refused_with_examples(text):
    """Also digits that only Python takes for digits."""
    with pytest.raises(InvalidDuration, match="30s, 10m or 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["99999999999999999h", "2562047h47m16.854775808s", "-2562047h47m16.854775809s"])
def test_longer_than_go_can_count_is_told_so(text):
    """A CRD's pattern lets it pass; "no duration" would send people looking for a typing error."""
    with pytest.raises(InvalidDuration, match="longer than 2562047h"):
        parse_duration(text)


def test_never_and_absence_are_no_duration():
    """For fields that can be switched off."""
    assert parse_nillable_duration("Never") is None
    assert parse_nillable_duration(None) is None
    assert parse_nillable_duration("90m") == 5400.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.25, "250ms"), (1.5, "1.5s"), (90, "1m30s"), (5400, "1h30m0s"), (-3600, "-1h0m0s"), (1e-9, "1ns")],
)
def test_durations_are_written_as_go_writes_them(seconds, text):
    """So that other tools can read what is written into annotations."""
    assert format_duration(seconds) == text
