"""A recorded cluster can be explained from its file, and the file holds nothing that no decision reads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pykarpenter.api import kinds, labels
from pykarpenter.cli.explain import command
from pykarpenter.cli.plan import command as plan_command
from pykarpenter.cli.recording import record
from pykarpenter.runtime.settings import Settings
from tests.controllers.world import World, story

SMALL = [
    {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["c-4x-amd64-linux", "c-2x-amd64-linux"]},
    {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
]


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A cluster with a protected pod, an oversized node and a pod that fits nowhere."""
    found: dict[str, object] = {}

    async def main(world: World) -> None:
        await world.begin()
        never = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%", "reasons": ["Empty"]}]}
        await world.pool(requirements=SMALL, disruption=never)
        await world.deployment("web", 1, cpu="3")
        await world.until_running("web", 1)
        container = {
            "name": "main",
            "image": "pause",
            "args": ["--password=hunter2"],
            "env": [{"name": "TOKEN", "value": "s3cr3t"}],
            "resources": {"requests": {"cpu": "3"}},
        }
        body = {
            "metadata": {
                "name": "keep",
                "annotations": {labels.DO_NOT_DISRUPT: "true", "example.com/note": "private"},
            },
            "spec": {"containers": [container]},
        }
        await world.api.create(kinds.POD, body, "default")
        large = {"metadata": {"name": "huge"}, "spec": {"containers": [{**container, "name": "m"}]}}
        large["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "64"}}
        await world.api.create(kinds.POD, large, "default")

        async def both() -> bool:
            return await world.running() == 2

        await world.until(both, 120)
        await asyncio.sleep(60)
        assert world.operator is not None
        provider = world.operator.context.provider
        listed, warnings = await record(world.api, provider, world.clock.now(), {})
        assert warnings == []
        found["listed"] = listed
        found["nodes"] = {p.name: p.spec.node_name for p in await world.pods()}

    story(main, settings=Settings())
    path = tmp_path_factory.mktemp("recording") / "cluster.yaml"
    path.write_text(yaml.safe_dump(found["listed"], sort_keys=False))
    return str(path), found["nodes"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_s14_recording_holds_no_environment_arguments_or_private_annotations(recording):
    """A bug report must be safe to send."""
    text = Path(recording[0]).read_text()
    for secret in ("hunter2", "s3cr3t", "TOKEN", "private", "example.com/note"):
        assert secret not in text
    assert labels.DO_NOT_DISRUPT in text


def test_node_with_a_protected_pod_says_which(recording):
    """From the file alone."""
    path, nodes = recording
    text = run("node", nodes["keep"], "-f", path)
    assert 'stays: Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/keep)' in text


def test_node_of_a_deployment_says_what_was_compared(recording):
    """Its pod needs most of it."""
    path, nodes = recording
    web = next(node for name, node in nodes.items() if name.startswith("web"))
    assert "Can't replace with a cheaper node ($0." in run("node", web, "-f", path)


def test_pods_say_whether_they_hold_their_node_and_why_they_wait(recording):
    """One protected, one without a place."""
    path, _ = recording
    assert "keeps its node from being disrupted" in run("pod", "default/keep", "-f", path)
    assert "waits:" in run("pod", "huge", "-f", path)


def test_pool_shows_budgets(recording):
    """As numbers and as JSON."""
    path, _ = recording
    assert "Empty: 2 of 2 may be out" in run("nodepool", "default", "-f", path)
    values = json.loads(run("nodepool", "default", "-f", path, "-o", "json"))
    assert values["nodes"] == 2
    assert [a["allowed"] for a in values["allowances"] if a["reason"] == "Underutilized"] == [None]


def test_plan_reads_the_same_file(recording):
    """One format for all."""
    result = CliRunner().invoke(plan_command, ["-f", recording[0]])
    assert "default/huge" in result.output


def test_unknown_name_lists_what_there_is(recording):
    """And exits 1."""
    result = CliRunner().invoke(command, ["node", "nope", "-f", recording[0]])
    assert result.exit_code == 1
    assert "node 'nope' is not in the cluster; there is kwok-default-" in result.output
