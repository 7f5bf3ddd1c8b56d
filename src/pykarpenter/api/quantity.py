"""Exact Kubernetes quantities: every suffix and exponent, no floating point.

`parse_quantity` gives an exact Fraction. Tables hold integers: cpu in milli, everything else in base units;
requests round up, allocatable rounds down, so that rounding never makes a pod fit where it does not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

_SUFFIXES: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_PATTERN = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+)|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?")

# An API server takes numbers of any length. Digits and exponents beyond this only say "beyond every machine" or "next
# to nothing", and reading them exactly would take for ever.
_MOST_DIGITS = 100

# The largest magnitude Kubernetes keeps exactly; beyond it quantities are capped there too.
INT64_MAX = 2**63 - 1

MILLI_RESOURCES = frozenset({"cpu"})


class InvalidQuantity(ValueError):
    """A quantity that Kubernetes would not accept either."""

    def __init__(self, value: object) -> None:
        super().__init__(
            f"invalid quantity {value!r}: expected a number with an optional suffix such as m, k, Mi, Gi or e3"
        )
        self.value = value


@lru_cache(maxsize=16384)
def _parse_text(text: str) -> Fraction:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise InvalidQuantity(text)
    sign, whole, part, exponent, suffix = match.groups()
    if not whole and not part:
        raise InvalidQuantity(text)
    number = _number(whole, part)
    if exponent:
        number *= Fraction(10) ** _exponent(exponent)
    elif suffix:
        number *= _SUFFIXES[suffix]
    return -number if sign == "-" else number


def _number(whole: str, part: str) -> Fraction:
    whole, part = whole.lstrip("0"), part.rstrip("0")
    if len(whole) > _MOST_DIGITS:
        return Fraction(10**_MOST_DIGITS)
    if len(part) > _MOST_DIGITS:
        # Cut off, but never to nothing: a request that is not zero stays one.
        part = part[: _MOST_DIGITS - 1] + "1"
    return Fraction(int(whole + part or "0"), 10 ** len(part))


def _exponent(text: str) -> int:
    digits = text.lstrip("+-").lstrip("0") or "0"
    size = _MOST_DIGITS if len(digits) > len(str(_MOST_DIGITS)) else min(int(digits), _MOST_DIGITS)
    return -size if text.startswith("-") else size


def parse_quantity(value: str | int | float) -> Fraction:
    """The exact value of a quantity; raises InvalidQuantity."""
    if isinstance(value, bool):
        raise InvalidQuantity(value)
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidQuantity(value)
        return _parse_text(repr(value))
    return _parse_text(value)


@lru_cache(maxsize=65536)
def _to_units(name: str, value: str | int | float, round_up: bool) -> int:
    exact = parse_quantity(value)
    if name in MILLI_RESOURCES:
        exact *= 1000
    units = math.ceil(exact) if round_up else math.floor(exact)
    return max(-INT64_MAX, min(INT64_MAX, units))


def available_units(name: str, value: str | int | float) -> int:
    """Integer table units of an offered amount, rounded down."""
    return _to_units(name, value, False)


def requested(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    return {name: _to_units(name, value, True) for name, value in quantities.items()}


def available(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    return {name: _to_units(name, value, False) for name, value in quantities.items()}


def format_units(name: str, units: int) -> str:
    """The canonical quantity of table units: cpu in cores or milli, memory-like resources in binary suffixes."""
    if name in MILLI_RESOURCES:
        return str(units // 1000) if units % 1000 == 0 else f"{units}m"
    if name in ("memory", "ephemeral-storage", "storage") or name.startswith("hugepages-"):
        for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
            size = int(_SUFFIXES[suffix])
            if units and units % size == 0:
                return f"{units // size}{suffix}"
    return str(units)


def format_quantities(resources: Mapping[str, int]) -> dict[str, str]:
    return {name: format_units(name, units) for name, units in sorted(resources.items())}
