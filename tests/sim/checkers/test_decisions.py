"""The checkers of decisions notice what they are there for, in a careless program and in ours without its guards."""

from __future__ import annotations

import json

import pytest

from pykarpenter.api import kinds
from pykarpenter.cli import recording
from pykarpenter.controllers.disruption.orchestration import Orchestration
from pykarpenter.controllers.nodeclaim.garbage import GarbageCollection
from pykarpenter.core.disruption import consolidation
from pykarpenter.runtime import logs
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.runtime.controller import AT_WORK
from pykarpenter.runtime.metrics import MetricsRegistry
from pykarpenter.sim.checkers import DecisionCheckers, Report
from pykarpenter.sim.checkers.decisions import ENDS_CANDIDATES
from pykarpenter.sim.cloud.misbehaviour import CANARY
from pykarpenter.sim.faults.actions import CLASS, pool_manifest
from pykarpenter.sim.faults.stories import Step, Story
from pykarpenter.sim.faults.world import run_story
from pykarpenter.sim.journal import Journal
from tests.sim.worlds import in_cluster

from .test_safety import launch, mark


def broken_by(deed, decision=None, at_work: str = ENDS_CANDIDATES) -> list[str]:
    async def main(cluster):
        AT_WORK.set(at_work)
        await cluster.install([CLASS, pool_manifest("pool")])
        report = Report()
        checkers = DecisionCheckers(cluster, Journal(cluster.store), report, lambda claim: decision)
        await deed(cluster, cluster.client("program", [checkers]))
        return [v.invariant for v in report.violations]

    return in_cluster(main)


async def _replace(cluster, api, *, initialized: bool):
    await launch(cluster, "old")
    await launch(cluster, "new")
    await mark(cluster, "old", "DisruptionReason", "Underutilized")
    if initialized:
        await mark(cluster, "new", "Initialized", "Initialized")
    for instance in cluster.cloud.live():
        item = cluster.cloud.market.catalog.types[0 if instance.node_name == "sim-new" else -1]
        instance.item, instance.offering = item, item.offerings[0]
    await api.delete(kinds.NODE_CLAIM, "old")


def test_s8_deleting_before_the_replacement_is_ready_is_noticed():
    async def early(cluster, api):
        await _replace(cluster, api, initialized=False)

    async def in_order(cluster, api):
        await _replace(cluster, api, initialized=True)

    decision = (("old",), ("new",))
    assert "S8" in broken_by(early, decision)
    assert "S8" not in broken_by(in_order, decision)


def test_s8_s12_a_lost_candidate_is_given_up_by_its_collector_but_not_by_the_decision():
    """Seeds 220 and 1045: the collector of claims without a machine is no graceful disruption, the decision is one."""

    async def give_up(cluster, api, *, is_lost: bool):
        await launch(cluster, "old")
        await launch(cluster, "new")
        await mark(cluster, "old", "Registered", "Registered")
        await mark(cluster, "old", "DisruptionReason", "Underutilized")
        if is_lost:
            cluster.cloud.lose(next(i.id for i in cluster.cloud.live() if i.node_name == "sim-old"))
        await api.delete(kinds.NODE_CLAIM, "old")

    async def lost(cluster, api):
        await give_up(cluster, api, is_lost=True)

    async def running(cluster, api):
        await give_up(cluster, api, is_lost=False)

    decision = (("old",), ("new",))
    assert "S8" in broken_by(lost, decision)
    assert broken_by(lost, decision, "nodeclaim.garbagecollection") == []
    assert broken_by(running, decision, "nodeclaim.garbagecollection") == ["S12"]


def test_s13_replacing_by_something_dearer_is_noticed():
    async def deed(cluster, api):
        await _replace(cluster, api, initialized=True)

    found = [broken_by(deed, (("old",), ("new",))), broken_by(deed, (("new",), ("old",)))]
    assert sorted("S13" in broken for broken in found) == [False, True]


def test_s12_giving_up_a_machine_that_runs_is_noticed():
    async def deed(cluster, api):
        await launch(cluster, "one")
        await mark(cluster, "one", "Registered", "Registered")
        await api.delete(kinds.NODE_CLAIM, "one")

    assert broken_by(deed) == ["S12"]


def test_s14_a_published_secret_is_noticed():
    async def deed(cluster, api):
        await launch(cluster, "one")
        await mark(cluster, "one", "Launched", CANARY)

    assert broken_by(deed) == ["S14"]


DRIFTING = Story(
    9,
    (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(3.0, "deploy", {"name": "web", "replicas": 5, "cpu": "1", "memory": "1Gi"}),
        Step(300.0, "roll_out", {"pool": "general", "generation": "two"}),
    ),
)


def test_s8_without_waiting_for_replacements_the_checkers_fail(monkeypatch: pytest.MonkeyPatch):
    """Turning the guard off must be noticed, or a green run proves nothing."""

    async def do_not_wait(self, running):
        running.starting.clear()
        return ""

    assert run_story(DRIFTING).is_good
    monkeypatch.setattr(Orchestration, "_await_replacements", do_not_wait)
    assert "S8" in {v.invariant for v in run_story(DRIFTING).violations}


SHORT_LISTS = Story(
    11,
    (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(3.0, "deploy", {"name": "web", "replicas": 3, "cpu": "1", "memory": "1Gi"}),
        Step(300.0, "shorten_lists", {"times": 3}),
    ),
)


def test_s12_f6_without_asking_twice_the_checkers_fail(monkeypatch: pytest.MonkeyPatch):
    """A listing that leaves machines out is believed at once: the claims of running machines are given up."""

    async def believe(self, claim):
        return True

    outcome = run_story(SHORT_LISTS)
    assert outcome.is_good and outcome.fired.get("F6") == 3
    monkeypatch.setattr(GarbageCollection, "_is_gone", believe)
    assert "S12" in {v.invariant for v in run_story(SHORT_LISTS).violations}


SHRINKING = Story(
    12,
    (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(3.0, "deploy", {"name": "web", "replicas": 20, "cpu": "2", "memory": "1Gi"}),
        Step(300.0, "scale", {"name": "web", "to": 3}),
    ),
    gates="SpotToSpotConsolidation=true",
)


def test_s13_without_comparing_prices_the_checkers_fail(monkeypatch: pytest.MonkeyPatch):
    """The dearest machines that would take the pods are asked for instead of cheaper ones."""

    def dearest(world, claim, options, limit):
        return sorted(options, key=lambda option: option.best)[-20:]

    assert run_story(SHRINKING).is_good
    monkeypatch.setattr(consolidation, "_cheaper", dearest)
    monkeypatch.setattr(consolidation, "not_worth_it", lambda world, candidates, saving: None)
    assert "S13" in {v.invariant for v in run_story(SHRINKING).violations}


LEAKY = Story(
    10,
    (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(2.0, "deny", {"calls": "launch", "for_s": 120}),
        Step(3.0, "deploy", {"name": "web", "replicas": 3, "cpu": "1", "memory": "1Gi"}),
        Step(200.0, "throttle_cloud", {"times": 10}),
        Step(201.0, "scale", {"name": "web", "to": 30}),
    ),
)


def test_s14_errors_with_secrets_reach_neither_objects_nor_logs_nor_metrics(monkeypatch: pytest.MonkeyPatch):
    """The cloud's errors carry a token; with the redaction of logs switched off it would be seen."""
    lines: list[str] = []
    logs.configure("debug", write=lines.append)
    try:
        metrics = MetricsRegistry(SystemClock())
        outcome = run_story(LEAKY, metrics=metrics)
        told = metrics.expose().decode()
        assert "karpenter_cloudprovider_errors_total" in told and CANARY not in told
        assert outcome.fired.get("F17") and outcome.fired.get("F5")
        assert outcome.is_good, [str(v) for v in outcome.violations]
        assert lines and not [line for line in lines if CANARY in line]
        monkeypatch.setattr(logs, "redact", lambda key, value: value)
        run_story(LEAKY)
        assert any(CANARY in line for line in lines)
    finally:
        logs.configure("error", write=lambda line: None)


def _dump() -> str:
    """A snapshot of a cluster whose pod carries secrets wherever people put them."""

    async def main(cluster):
        container = {
            "name": "main",
            "image": "app",
            "env": [{"name": "TOKEN", "value": CANARY}],
            "args": [f"--password={CANARY}"],
            "command": ["sh", "-c", f"echo {CANARY}"],
        }
        metadata = {"name": "app", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": CANARY}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "app", "namespace": "default"},
            "data": {"token": CANARY},
        }
        await cluster.install([CLASS, pool_manifest("pool"), pod])
        cluster.store.create(cluster.store.resource("", "secrets"), secret, "default")
        listed, _ = await recording.record(cluster.api, cluster.provider, cluster.clock.now(), {})
        assert any(item["kind"] == "Pod" for item in listed["items"])
        return json.dumps(listed)

    return in_cluster(main)


def test_s14_snapshots_hold_no_secrets(monkeypatch: pytest.MonkeyPatch):
    """What is attached to a bug report; with the allow-list of annotations switched off it would be seen."""
    assert CANARY not in _dump()
    monkeypatch.setattr(recording, "is_kept", lambda key: True)
    assert CANARY in _dump()
