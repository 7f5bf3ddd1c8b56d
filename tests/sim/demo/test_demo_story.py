"""The demonstration's story ends as it promises; on virtual time, so it costs no waiting."""

from __future__ import annotations

import asyncio

import pytest

from pykarpenter.api import kinds
from pykarpenter.runtime.settings import Settings
from pykarpenter.sim.cluster import ClusterOptions
from pykarpenter.sim.demo.narrator import Narrator
from pykarpenter.sim.demo.picture import take_picture
from pykarpenter.sim.demo.story import TIMING, Story, StoryFailed
from pykarpenter.sim.journal import Journal
from pykarpenter.sim.process import OperatorProcess
from tests.sim.worlds import in_cluster

OPTIONS = ClusterOptions(timing=TIMING)


def test_story_reaches_its_end_and_is_told_in_sentences():
    async def main(cluster):
        said: list[str] = []
        Narrator(Journal(cluster.store), cluster.cloud, cluster.clock, said.append)
        process = OperatorProcess(cluster, Settings(disable_leader_election=True))
        process.start()
        story = Story(cluster, said.append)
        started = cluster.clock.now()
        await story.tell()
        await process.stop()
        return story, said, take_picture(cluster), process.failures, cluster.clock.now() - started

    story, said, picture, failures, took = in_cluster(main, OPTIONS)
    assert failures == []
    assert took < 150, "it must end within three minutes, on a slow machine too"
    assert story.problems() == []
    assert picture.pending == 0
    assert {node.pool for node in picture.nodes} == {"general"}
    assert any("bought g" in sentence for sentence in said), "a GPU machine was bought"
    assert any("saved" in sentence for sentence in said)
    assert any(sentence.startswith("the bill fell from") for sentence in said), "it ends with consolidation"


def test_story_says_what_did_not_come_true():
    """Without an operator nothing is bought: the story must fail, not hang or succeed."""

    async def main(cluster):
        with pytest.raises(StoryFailed, match="not within 60 s: 12 web pods run"):
            await Story(cluster, lambda _: None).tell()

    in_cluster(main, OPTIONS)


def test_picture_shows_machines_that_are_still_booting():
    async def main(cluster):
        process = OperatorProcess(cluster, Settings(disable_leader_election=True))
        process.start()
        telling = asyncio.create_task(Story(cluster, lambda _: None).tell())
        while not cluster.cloud.live():
            await asyncio.sleep(0.1)
        picture = take_picture(cluster)
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        await process.stop()
        return picture, len(cluster.views.of(kinds.NODE))

    picture, nodes = in_cluster(main, OPTIONS)
    assert nodes == 0
    assert {node.state for node in picture.nodes} == {"booting"}
    assert picture.price_per_hour > 0
