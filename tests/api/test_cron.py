"""Budget windows open when cron says so; cronsim is the independent reader to agree with."""

import random
from datetime import UTC, datetime

import pytest
from cronsim import CronSim

from pykarpenter.api.cron import DESCRIPTORS, InvalidSchedule, parse_schedule


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def following(schedule, text, count=1):
    moment, found = at(text), []
    for _ in range(count):
        moment = parse_schedule(schedule).next_after(moment)
        found.append(datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M"))
    return found


def random_field(rng, low, high):
    def one():
        a, b = sorted(rng.sample(range(low, high + 1), 2))
        return rng.choice([f"{a}", f"{a}-{b}", f"{a}-{b}/{rng.randint(1, 5)}", f"{a},{b}"])

    return rng.choice(["*", "*", one(), f"{one()},{one()}"])


def random_line(rng):
    minute = rng.choice([random_field(rng, 0, 59), f"*/{rng.randint(1, 30)}"])
    hour = rng.choice([random_field(rng, 0, 23), f"*/{rng.randint(1, 12)}"])
    month = rng.choice([random_field(rng, 1, 12), "jan-MAR", "Feb", f"*/{rng.randint(1, 6)}"])
    weekday = rng.choice([random_field(rng, 0, 6), "mon-fri", "SAT", "sun,wed"])
    return f"{minute} {hour} {random_field(rng, 1, 28)} {month} {weekday}"


@pytest.mark.promise("API-1.1.9")
def test_next_begin_agrees_with_an_independent_reader():
    """400 random lines, three begins each."""
    rng = random.Random(7)
    for _ in range(400):
        line = random_line(rng)
        start = datetime.fromtimestamp(rng.randrange(1_600_000_000, 2_000_000_000), UTC)
        moment = start.timestamp()
        for expected in [begin for begin, _ in zip(CronSim(line, start), range(3), strict=False)]:
            moment = parse_schedule(line).next_after(moment)
            assert moment == expected.timestamp(), line


@pytest.mark.promise("API-1.1.9")
@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("@hourly", "2026-03-04 06:00"),
        ("@daily", "2026-03-05 00:00"),
        ("@midnight", "2026-03-05 00:00"),
        ("@weekly", "2026-03-08 00:00"),
        ("@monthly", "2026-04-01 00:00"),
        ("@yearly", "2027-01-01 00:00"),
        ("@annually", "2027-01-01 00:00"),
    ],
)
def test_descriptors_name_the_usual_times(schedule, expected):
    """All seven of the CRD's pattern are understood."""
    assert following(schedule, "2026-03-04 05:06:07") == [expected]
    assert schedule in DESCRIPTORS


@pytest.mark.promise("API-1.1.9")
def test_restricted_days_are_ored_and_a_star_is_not_a_restriction():
    """The oldest surprise of cron: the 13th or any Friday, not Friday the 13th."""
    assert following("0 0 13 * 5", "2026-02-06 12:00", 3) == [
        "2026-02-13 00:00",
        "2026-02-20 00:00",
        "2026-02-27 00:00",
    ]
    assert following("0 0 13 * *", "2026-02-06 12:00", 2) == ["2026-02-13 00:00", "2026-03-13 00:00"]
    assert following("0 0 ? * 5", "2026-02-06 12:00", 1) == ["2026-02-13 00:00"]


@pytest.mark.promise("API-1.1.5")
def test_next_begin_is_strictly_later():
    """A window that begins now is found by looking from one duration ago, never from now."""
    assert following("30 9 * * *", "2026-01-01 09:30:00") == ["2026-01-02 09:30"]
    assert parse_schedule("30 9 * * *").next_after(at("2026-01-01 09:30:00") - 0.5) == at("2026-01-01 09:30:00")


def test_leap_day_is_found_across_a_century_and_february_30_never():
    """A search that gave up after five years would miss 2104; one without an end would hang."""
    assert following("0 0 29 2 *", "2096-03-01 00:00") == ["2104-02-29 00:00"]
    assert parse_schedule("0 0 30 2 *").next_after(at("2026-01-01 00:00")) is None


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("@dailyx", "unknown descriptor"),
        ("a b c d e", "'a' is no minute"),
        ("* * * *", "4 fields"),
        ("TZ=Asia/Tokyo 0 0 * * *", "6 fields"),
        ("60 * * * *", "minute must be between 0 and 59"),
        ("* 24 * * *", "hour must be between 0 and 23"),
        ("* * 0 * *", "day of month must be between 1 and 31"),
        ("* * * 13 *", "month must be between 1 and 12"),
        ("* * * * 7", "day of week must be between 0 and 6"),
        ("5-1 * * * *", "runs backwards"),
        ("*/0 * * * *", "step of minute must be 1 or more"),
        ("*/x * * * *", "'x' is no minute"),
        ("1,,2 * * * *", "'' is no minute"),
        ("-1 * * * *", "'' is no minute"),
        ("mon * * * *", "'mon' is no minute"),
    ],
)
def test_b1_unreadable_schedule_names_what_is_wrong(schedule, problem):
    """The pattern of the CRD lets such lines through, so the reader is the one to say it."""
    with pytest.raises(InvalidSchedule, match="invalid schedule") as caught:
        parse_schedule(schedule)
    assert problem in str(caught.value)
