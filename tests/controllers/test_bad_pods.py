"""Rows of the bad-input catalogue about pods, over the whole path: each gets its reason, and the batch goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykarpenter.api import labels

from .world import World, story

ZONE = labels.ZONE


def _needs(**term: Any) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _peers(kind: str, key: str, **selector: Any) -> dict[str, Any]:
    return {
        "affinity": {
            kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": selector}]}
        }
    }


def _spread(key: str) -> dict[str, Any]:
    return {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}]}


def _claim(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def _asks(**requests: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "pause", "resources": {"requests": requests}}]}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(_asks(cpu="300"), ["nearest is c-256x-", "lacks 44100m cpu"], id="b22-too-large"),
        pytest.param(_asks(cpu="100M"), ["typo of m as M"], id="b22-millions-of-cores"),
        pytest.param(_asks(memory="1e1000"), ["nearest is ", "memory"], id="b22-beyond-all-numbers"),
        pytest.param(
            _needs(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n"]}]),
            ["matchFields is not supported; use matchExpressions"],
            id="b23-match-fields",
        ),
        pytest.param({"nodeSelector": {"kubernetes.io/hostname": "n"}}, ["is restricted"], id="b23-restricted-key"),
        pytest.param(
            {"nodeSelector": {"team": "a"}}, ['label "team" does not have known values'], id="b23-unknown-label"
        ),
        pytest.param(_spread("example.com/rack"), ["no domain of example.com/rack is known"], id="b24-unknown-key"),
        pytest.param(
            _peers("podAffinity", ZONE, matchLabels={"app": "ghost"}),
            ["app=ghost", "pods per domain: test-zone-a=0, test-zone-b=0"],
            id="b25-nobody-there",
        ),
        pytest.param(_claim("gone"), ['persistentvolumeclaim "gone" not found'], id="b26-no-claim"),
    ],
)
def test_b22_to_b26_a_bad_pod_gets_its_reason_and_the_batch_goes_on(spec: dict[str, Any], words: list[str]) -> None:
    """One event that names the cause, no machine for it, and nobody else waits."""

    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("bad", 1, **spec)
        await world.deployment("good", 3)
        await world.until_running("good", 3)
        await asyncio.sleep(60)
        told = [
            event.message for event in await world.events("FailedScheduling") if event.source.component == "karpenter"
        ]
        assert len(told) == 1 and all(word in told[0] for word in words), told
        assert await world.running("bad") == 0
        assert len(await world.claims()) == 1

    story(main)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(_asks(memory="1e0003"), id="zeros-in-an-exponent"),
        pytest.param(_asks(cpu="1n", memory="0." + "0" * 5000 + "1"), id="next-to-nothing"),
        pytest.param(_peers("podAntiAffinity", "example.com/rack", matchLabels={}), id="alone-in-a-rack"),
    ],
)
def test_l6_an_odd_pod_that_runs_keeps_nobody_from_planning(odd: dict[str, Any]) -> None:
    """An API server stores what was written, and kube-scheduler binds it where there is room already."""

    async def main(world: World) -> None:
        await world.begin()
        await world.pool()
        await world.deployment("first", 1)
        await world.until_running("first", 1)
        await world.deployment("odd", 1, cpu="100m", **odd)
        await world.until_running("odd", 1)
        await world.deployment("late", 4, cpu="2")
        await world.until_running("late", 4)

    story(main)
