"""Cron schedules of disruption budgets: five fields or a descriptor, always in UTC.

Minute, hour, day of month, month and day of week (0 is Sunday, 7 is refused). When both day fields are restricted, a
day that meets either counts. A field with `*` or `?` restricts nothing; `*/2` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

DESCRIPTORS: dict[str, str] = {
    "@annually": "0 0 1 1 *",
    "@yearly": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Leap days can be eight years apart (1896 to 1904, 2096 to 2104).
_LONGEST_GAP_DAYS = 8 * 366


class InvalidSchedule(ValueError):
    """Text that is no schedule: what is wrong with it, and where."""

    def __init__(self, schedule: str, problem: str) -> None:
        super().__init__(
            f"invalid schedule {schedule!r}: {problem}; expected five cron fields "
            f"(minute hour day-of-month month day-of-week) or one of {', '.join(sorted(DESCRIPTORS))}"
        )
        self.schedule = schedule
        self.problem = problem


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def parse(self, text: str) -> tuple[frozenset[int], bool]:
        """The values, and whether the field restricts anything; raises ValueError."""
        values: set[int] = set()
        restricted = True
        for part in text.split(","):
            span, slash, step_text = part.partition("/")
            step = self._number(step_text, names=False) if slash else 1
            if step < 1:
                raise ValueError(f"the step of {self.name} must be 1 or more, not {step_text!r}")
            if span in ("*", "?"):
                low, high = self.low, self.high
                restricted = restricted and step > 1
            else:
                low, high = self._span(span, open_ended=bool(slash))
            values.update(range(low, high + 1, step))
        return frozenset(values), restricted

    def _span(self, text: str, open_ended: bool) -> tuple[int, int]:
        first, dash, last = text.partition("-")
        low = self._number(first)
        high = self._number(last) if dash else (self.high if open_ended else low)
        if low < self.low or high > self.high:
            raise ValueError(f"{self.name} must be between {self.low} and {self.high}, not {text!r}")
        if low > high:
            raise ValueError(f"the range {text!r} of {self.name} runs backwards")
        return low, high

    def _number(self, text: str, names: bool = True) -> int:
        if names and text.lower() in self.names:
            return self.names.index(text.lower()) + self.low
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"{text!r} is no {self.name}")
        return int(text)


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The minutes at which something begins."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    # Both day fields restricted: either may match.
    either_day: bool

    def next_after(self, epoch_s: float) -> float | None:
        """The first begin strictly after a time, in epoch seconds; None when there is none, as on February 30."""
        moment = datetime.fromtimestamp(int(epoch_s // 60) * 60 + 60, UTC)
        for _ in range(_LONGEST_GAP_DAYS + 1):
            if self._matches_day(moment):
                found = self._next_in_day(moment)
                if found is not None:
                    return found.timestamp()
            moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
        return None

    def _matches_day(self, moment: datetime) -> bool:
        if moment.month not in self.months:
            return False
        day = moment.day in self.days
        weekday = moment.isoweekday() % 7 in self.weekdays
        return (day or weekday) if self.either_day else (day and weekday)

    def _next_in_day(self, moment: datetime) -> datetime | None:
        for hour in self.hours:
            if hour < moment.hour:
                continue
            first = moment.minute if hour == moment.hour else 0
            for minute in self.minutes:
                if minute >= first:
                    return moment.replace(hour=hour, minute=minute)
        return None


@lru_cache(maxsize=1024)
def parse_schedule(text: str) -> Schedule:
    """A schedule from its notation; raises InvalidSchedule."""
    line = text.strip()
    if line.startswith("@"):
        if line not in DESCRIPTORS:
            raise InvalidSchedule(text, "unknown descriptor")
        line = DESCRIPTORS[line]
    parts = line.split()
    if len(parts) != len(_FIELDS):
        raise InvalidSchedule(text, f"it has {len(parts)} fields")
    try:
        parsed = [field.parse(part) for field, part in zip(_FIELDS, parts, strict=True)]
    except ValueError as error:
        raise InvalidSchedule(text, str(error)) from None
    (minutes, _), (hours, _), (days, some_days), (months, _), (weekdays, some_weekdays) = parsed
    return Schedule(
        tuple(sorted(minutes)), tuple(sorted(hours)), days, months, weekdays, either_day=some_days and some_weekdays
    )
