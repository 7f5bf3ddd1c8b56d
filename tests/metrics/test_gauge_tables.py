"""Gauges of many objects: rendered when they change, copied when they are scraped."""

from __future__ import annotations

from pykarpenter.controllers.metrics.refreshing import Refresher
from pykarpenter.runtime import logs
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.runtime.gauge_tables import GaugeTable

VALUE, AGE = "karpenter_nodes_allocatable", "karpenter_nodes_current_lifetime_seconds"


def lines(table: GaugeTable) -> list[str]:
    return [line for line in b"".join(table.chunks()).decode().splitlines() if not line.startswith("#")]


def test_an_object_shows_exactly_its_last_series() -> None:
    """A label that changed must not leave the old series behind."""
    table = GaugeTable(lambda: 100.0)
    table.put("a", [(VALUE, {"zone": "x"}, 1.0), (VALUE, {"zone": "y"}, 2.0)], [(AGE, {}, 40.0)])
    assert lines(table) == [f'{VALUE}{{zone="x"}} 1', f'{VALUE}{{zone="y"}} 2', f"{AGE} 60.000"]
    table.put("a", [(VALUE, {"zone": "z"}, 3.0)])
    assert lines(table) == [f'{VALUE}{{zone="z"}} 3']
    table.drop("a")
    assert lines(table) == [] == list(table.chunks())


def test_values_are_escaped_as_the_format_asks() -> None:
    """A name with a quote must not break the whole scrape."""
    table = GaugeTable(lambda: 0.0)
    table.put("a", [(VALUE, {"name": 'a"b\\c\nd'}, 1.0)])
    assert lines(table) == [f'{VALUE}{{name="a\\"b\\\\c\\nd"}} 1']


def test_ten_thousand_objects_come_in_pieces() -> None:
    """The first bytes go out before the last are joined; one head per family."""
    table = GaugeTable(lambda: 0.0)
    for number in range(10_000):
        table.put(str(number), [(VALUE, {"name": str(number)}, float(number))])
    pieces = list(table.chunks())
    assert len(pieces) > 3 and max(map(len, pieces)) < 200_000
    text = b"".join(pieces).decode()
    assert text.count("# TYPE") == 1 and len(text.splitlines()) == 10_002


def test_a_reader_does_not_mind_changes_while_it_reads() -> None:
    """Scrapes run in a thread, beside the loop that changes objects."""
    table = GaugeTable(lambda: 0.0)
    for number in range(5_000):
        table.put(str(number), [(VALUE, {}, 1.0)])
    reading = table.chunks()
    first = next(reading)
    for number in range(5_000):
        table.drop(str(number))
    assert len((first + b"".join(reading)).splitlines()) == 5_002


async def test_an_object_that_cannot_be_shown_is_told_once_per_mistake() -> None:
    """It comes again every five seconds; the log is for news."""
    said: list[str] = []
    mistakes = iter(["one", "one", "", "two"])

    def render(key: str) -> None:
        if mistake := next(mistakes):
            raise ValueError(mistake)

    refresher = Refresher("metrics.test", render, SystemClock(), lambda: None)
    logs.configure("error", clock=SystemClock(), commit="", write=said.append)
    try:
        for _ in range(4):
            refresher.touch("a")
            await refresher.step()
    finally:
        logs.silence()
    assert [("one" in line, "two" in line) for line in said] == [(True, False), (False, True)]
