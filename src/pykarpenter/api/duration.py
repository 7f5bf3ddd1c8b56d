"""Go-style durations, with `Never` for fields that can be switched off.

Durations are integer nanoseconds, as Go has them, because the NodePool hash is taken over that number.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")

NEVER = "Never"
NANOSECONDS = 10**9
_INT64_MAX = 2**63 - 1
# More digits say nothing that a duration can hold, and would take long to read.
_MOST_DIGITS = 100
_TOO_LONG = "is longer than 2562047h (292 years), the longest there is"


class InvalidDuration(ValueError):
    """Text that is not a Go duration; `remedy` says what would be."""

    def __init__(self, value: object, remedy: str = "expected Go notation such as 30s, 10m or 1h30m") -> None:
        super().__init__(f"invalid duration {value!r}: {remedy}")
        self.value = value
        self.remedy = remedy


@lru_cache(maxsize=4096)
def parse_duration_ns(text: str) -> int:
    """Nanoseconds of a Go duration; raises InvalidDuration."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    total = Fraction(0)
    position = 0
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None:
            raise InvalidDuration(text)
        number = match.group(1).rstrip(".")
        if len(number) > _MOST_DIGITS:
            raise InvalidDuration(text, _TOO_LONG)
        total += Fraction(number) * _UNITS[match.group(2)]
        position = match.end()
    if position == 0:
        raise InvalidDuration(text)
    nanoseconds = sign * int(total)
    if not -_INT64_MAX - 1 <= nanoseconds <= _INT64_MAX:
        raise InvalidDuration(text, _TOO_LONG)
    return nanoseconds


def parse_duration(text: str) -> float:
    """Seconds of a Go duration; raises InvalidDuration."""
    return parse_duration_ns(text) / NANOSECONDS


def parse_nillable_duration(text: str | None) -> float | None:
    """Seconds, or None for `Never` and for an absent value."""
    if text is None or text == NEVER:
        return None
    return parse_duration(text)


def format_duration(seconds: float) -> str:
    """Go's own notation, e.g. `1h30m0s`, `1.5s`, `250ms`, `0s`."""
    nanos = round(seconds * NANOSECONDS)
    if nanos == 0:
        return "0s"
    sign = "-" if nanos < 0 else ""
    nanos = abs(nanos)
    if nanos < NANOSECONDS:
        for unit, size in (("ms", 10**6), ("µs", 10**3), ("ns", 1)):
            if nanos >= size:
                return f"{sign}{_decimal(nanos, size)}{unit}"
    hours, rest = divmod(nanos, 3600 * NANOSECONDS)
    minutes, rest = divmod(rest, 60 * NANOSECONDS)
    text = f"{_decimal(rest, NANOSECONDS)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    if minutes:
        return f"{sign}{minutes}m{text}"
    return sign + text


def _decimal(amount: int, size: int) -> str:
    whole, part = divmod(amount, size)
    if part == 0:
        return str(whole)
    width = len(str(size)) - 1
    return f"{whole}.{part:0{width}d}".rstrip("0")
