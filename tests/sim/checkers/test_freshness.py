"""S9: what a program writes to disturb something is no older than its own last write to it."""

from __future__ import annotations

import asyncio

import pytest

from pykarpenter.api import kinds
from pykarpenter.controllers.node.eviction import EvictionQueue
from pykarpenter.kube.contract import DeleteOptions, Preconditions
from pykarpenter.sim.checkers import FreshnessChecker, Report
from pykarpenter.sim.faults.actions import CLASS, pool_manifest
from pykarpenter.sim.faults.stories import Step, Story
from pykarpenter.sim.faults.world import run_story
from tests.sim.worlds import in_cluster

from .test_safety import launch


def broken_by(deed) -> list[str]:
    async def main(cluster):
        await cluster.install([CLASS, pool_manifest("pool")])
        await launch(cluster, "one")
        report = Report()
        await deed(cluster.client("program", [FreshnessChecker(cluster, report)]))
        return [v.invariant for v in report.violations]

    return in_cluster(main)


async def _write(api):
    await api.get(kinds.NODE_CLAIM, "one")
    return await api.patch(kinds.NODE_CLAIM, "one", {"metadata": {"labels": {"x": "y"}}})


def test_s9_deleting_by_what_was_seen_before_the_own_write_is_noticed():
    async def stale(api):
        await _write(api)
        await api.delete(kinds.NODE_CLAIM, "one")

    assert broken_by(stale) == ["S9"]


def test_s9_reading_again_hearing_of_it_or_naming_the_version_is_fresh():
    async def read_again(api):
        await _write(api)
        await api.get(kinds.NODE_CLAIM, "one")
        await api.delete(kinds.NODE_CLAIM, "one")

    async def heard_of_it(api):
        events = api.watch(kinds.NODE_CLAIM)
        heard = asyncio.create_task(_drain(events))
        await _write(api)
        await asyncio.sleep(1)
        heard.cancel()
        await asyncio.gather(heard, return_exceptions=True)
        await api.delete(kinds.NODE_CLAIM, "one")

    async def named(api):
        version = (await _write(api)).metadata.resource_version
        await api.delete(kinds.NODE_CLAIM, "one", options=DeleteOptions(Preconditions(resource_version=version)))

    assert [broken_by(deed) for deed in (read_again, heard_of_it, named)] == [[], [], []]


async def _drain(events):
    async for _ in events:
        pass


LATE = Story(
    13,
    (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(3.0, "deploy", {"name": "web", "replicas": 5, "cpu": "1", "memory": "1Gi"}),
        Step(200.0, "lag_pods", {"seconds": 60, "for_s": 300}),
        Step(203.0, "delete_claim", {"which": 0}),
    ),
)


def test_s9_f13_no_pod_is_evicted_again_before_its_eviction_is_seen(monkeypatch: pytest.MonkeyPatch):
    """Pod events come a minute late while a node drains; without the guard evictions are repeated every second."""
    outcome = run_story(LATE)
    assert outcome.fired.get("F13")
    assert outcome.is_good, [str(v) for v in outcome.violations]
    monkeypatch.setattr(EvictionQueue, "_is_behind", lambda self, key: False)
    assert {v.invariant for v in run_story(LATE).violations} == {"S9"}
