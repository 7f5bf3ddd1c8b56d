"""Ages as kubectl shows them: two units at most, coarser with time."""

from __future__ import annotations

from pykarpenter.api.timestamps import parse_timestamp

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def _pair(seconds: int, unit: int, letter: str, below: int, below_letter: str) -> str:
    rest = seconds % unit // below
    return f"{seconds // unit}{letter}{rest}{below_letter}" if rest else f"{seconds // unit}{letter}"


def human_duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _pair(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _pair(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _pair(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * 365 * _DAY:
        return f"{whole // _DAY}d"
    if whole < 8 * 365 * _DAY:
        return _pair(whole, 365 * _DAY, "y", _DAY, "d")
    return f"{whole // (365 * _DAY)}y"


def age(timestamp: str | None, now: float) -> str:
    if not timestamp:
        return "<unknown>"
    try:
        return human_duration(now - parse_timestamp(timestamp))
    except ValueError:
        return "<invalid>"
