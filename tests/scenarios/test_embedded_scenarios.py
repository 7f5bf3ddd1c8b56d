"""The ten scenarios on the embedded cluster; `make e2e` plays them on a real one and compares."""

from __future__ import annotations

from .playing import play_embedded
from .ten import TEN


def test_ten_scenarios_end_as_promised_on_the_embedded_cluster() -> None:
    """Cheap enough for every test run, so the expensive comparison rarely finds something new."""
    found = play_embedded()
    assert list(found) == list(TEN)
    wrong = [(name, f) for name, findings in found.items() for f in findings if f.answer != f.expected]
    assert wrong == []
