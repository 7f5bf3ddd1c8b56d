"""Failed replacements wait longer each time, pool by pool, across restarts."""

from __future__ import annotations

import msgspec

from pykarpenter.core.disruption import back_off
from pykarpenter.core.disruption.back_off import BackOff
from tests.support.fleet import NOON, Fleet


def carrying(text: str):
    pool = Fleet().pool()
    meta = msgspec.structs.replace(pool.metadata, annotations={back_off.ANNOTATION: text})
    return msgspec.structs.replace(pool, metadata=meta)


def test_waits_grow_from_a_minute_to_ten():
    """Equal jitter: at least half of the full wait."""
    pool = Fleet().pool()
    current, now = BackOff(), NOON
    for longest in (60, 120, 240, 480, 600, 600):
        current = back_off.failed(current, pool, now)
        assert longest / 2 <= current.until - now <= longest
        now = current.until


def test_several_failures_in_one_window_count_once():
    """Ten candidates of one pool fail together."""
    pool = Fleet().pool()
    first = back_off.failed(BackOff(), pool, NOON)
    assert back_off.failed(first, pool, NOON + 1) == first


def test_pool_carries_it_across_restarts():
    """And nonsense counts as none."""
    text = back_off.failed(BackOff(), Fleet().pool(), NOON).text()
    assert back_off.read(carrying(text)).failures == 1
    assert back_off.read(carrying("nonsense")) == BackOff()
    assert back_off.read(Fleet().pool()) == BackOff()


def test_pools_do_not_come_back_together():
    """Each has a jitter of its own."""
    fleet = Fleet()
    ends = {back_off.failed(BackOff(), fleet.pool(name), NOON).until for name in ("a", "b", "c")}
    assert len(ends) == 3
