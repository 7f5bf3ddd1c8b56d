"""Whether a budget's window is open, found by trying every minute: slow, plain, and not the program's own reading.

Five fields or one of the usual names, always UTC.
"""

from __future__ import annotations

import time

_NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def is_open(schedule: str, duration_s: float, now: float) -> bool:
    """A minute that the schedule names began after `now - duration` and not after `now`; ValueError when unreadable."""
    fields = _NAMES.get(schedule, schedule).split()
    if len(fields) != len(_RANGES):
        raise ValueError(f"schedule {schedule!r} has {len(fields)} fields, not five")
    allowed = [_values(text, *bounds) for text, bounds in zip(fields, _RANGES, strict=True)]
    either = fields[2] != "*" and fields[4] != "*"
    minute = int(now // 60) * 60
    while minute > now - duration_s:
        if _names(allowed, time.gmtime(minute), either_day=either):
            return True
        minute -= 60
    return False


def _names(allowed: list[frozenset[int]], at: time.struct_time, *, either_day: bool) -> bool:
    if at.tm_min not in allowed[0] or at.tm_hour not in allowed[1] or at.tm_mon not in allowed[3]:
        return False
    days = (at.tm_mday in allowed[2], (at.tm_wday + 1) % 7 in allowed[4])
    return any(days) if either_day else all(days)


def _values(text: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            begin, end = low, high
        else:
            begin = int(first)
            end = int(last) if last else (high if step else begin)
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(found)
