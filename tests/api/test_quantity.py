"""Quantities: all that an API server accepts is read, exactly; nothing else is."""

from fractions import Fraction

import pytest

from pykarpenter.api.quantity import (
    INT64_MAX,
    InvalidQuantity,
    available_units,
    format_units,
    parse_quantity,
    requested,
)

SUFFIXES = {
    "": 0,
    "n": -9,
    "u": -6,
    "m": -3,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def test_every_suffix_is_read_exactly():
    """A factor of 1.024 too much is a node that does not fit."""
    for suffix, power in SUFFIXES.items():
        assert parse_quantity(f"1.5{suffix}") == Fraction(3, 2) * Fraction(10) ** power
    for suffix, power in BINARY.items():
        assert parse_quantity(f"1.5{suffix}") == Fraction(3, 2) * 2**power


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e+3", 1000),
        ("5e-1", Fraction(1, 2)),
        ("1e0003", 1000),
        ("+1", 1),
        ("-1", -1),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("007", 7),
        (8, 8),
        (1.5, Fraction(3, 2)),
    ],
)
def test_signs_points_and_exponents_are_read(text, value):
    """All of them reach a controller: an API server stores what was written."""
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    ["", ".", "+", "-", "1K", "1ki", "1KI", "1e", "1e1.5", "1e3Ki", "1 ", " 1", "1\n", "--1", "0x1", "1_0", "1,5"],
)
def test_what_kubernetes_refuses_is_refused(text):
    """Guessing at a typing error buys the wrong machine."""
    with pytest.raises(InvalidQuantity, match="expected a number"):
        parse_quantity(text)


@pytest.mark.parametrize("value", [True, float("inf"), float("nan"), "٣", "１"])
def test_what_merely_looks_like_a_number_is_refused(value):
    """Python knows more digits than Kubernetes does."""
    with pytest.raises(InvalidQuantity):
        parse_quantity(value)


@pytest.mark.parametrize("text", ["9" * 40, "9" * 100_000, "1e1000", "10e999", "1e99999999999", "8Ei"])
def test_amounts_beyond_every_machine_are_capped(text):
    """An API server takes them; one such pod must not stop the planning of all others (L6)."""
    assert requested({"memory": text})["memory"] == available_units("memory", text) == INT64_MAX
    assert requested({"memory": f"-{text}"})["memory"] == -INT64_MAX


@pytest.mark.parametrize("text", ["1e-1000", "0." + "0" * 100_000 + "1", "0.1n", "1e-99999999999"])
def test_next_to_nothing_is_still_something(text):
    """Requests round up, room rounds down, however small."""
    assert requested({"memory": text})["memory"] == 1
    assert available_units("memory", text) == 0


@pytest.mark.parametrize("text", ["0", "0e99999999999", "0" * 100_000, "0.0Ei"])
def test_zero_stays_zero(text):
    """However it is written."""
    assert requested({"cpu": text})["cpu"] == 0


def test_cpu_is_kept_in_milli_and_the_rest_in_units():
    """And comes back in the notation that kubectl shows."""
    assert requested({"cpu": "1.0001"})["cpu"] == 1001
    assert available_units("cpu", "1.0009") == 1000
    assert requested({"memory": "1.5"})["memory"] == 2
    assert format_units("cpu", 1500) == "1500m"
    assert format_units("cpu", 2000) == "2"
    assert format_units("memory", 3 * 2**29) == "1536Mi"
    assert format_units("pods", 110) == "110"
