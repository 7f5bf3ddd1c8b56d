"""Text to setting values: each parser returns the value or raises ValueError saying what it expects.

Booleans and durations are read as Go reads them, because the same environment block starts Karpenter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from pykarpenter.api.duration import parse_duration

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_INT64_MAX = 2**63 - 1
_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})


def parse_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("expected true or false")


def integer(at_least: int | None = None, at_most: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # Python would also take underscores, blanks and other scripts' digits, which Go does not.
        if not _INTEGER.fullmatch(text):
            raise ValueError("expected an integer")
        value = int(text)
        if abs(value) > _INT64_MAX:
            raise ValueError("expected an integer of 64 bits")
        if at_least is not None and value < at_least:
            raise ValueError(f"expected an integer of at least {at_least}")
        if at_most is not None and value > at_most:
            raise ValueError(f"expected an integer of at most {at_most}")
        return value

    return parse


def price(text: str) -> float:
    """Dollars per hour, zero or more."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("expected a price in dollars per hour, such as 0.05") from None
    if not math.isfinite(value) or value < 0:
        raise ValueError("expected a price of zero or more")
    return value


def duration(text: str) -> float:
    """Seconds of a Go duration, zero or more."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise ValueError("expected a duration such as 10s or 1m30s") from None
    if seconds < 0:
        raise ValueError("expected a duration of zero or more")
    return seconds


def choice(*options: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in options:
            raise ValueError(f"expected one of {', '.join(options)}")
        return text

    return parse


def path_list(text: str) -> tuple[str, ...]:
    """Comma-separated file paths; `stdout` and `stderr` are the streams."""
    paths = tuple(part.strip() for part in text.split(",") if part.strip())
    if not paths:
        raise ValueError("expected at least one path, stdout or stderr")
    return paths
