"""`pykarpenter demo`: a cluster, a cloud and pykarpenter at work, in this terminal and nowhere else."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from pykarpenter.cli.demo_view import LiveView, PlainView, View
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.runtime.settings import Settings
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster
from pykarpenter.sim.demo.narrator import Narrator
from pykarpenter.sim.demo.picture import take_picture
from pykarpenter.sim.demo.story import TIMING, Story, StoryFailed
from pykarpenter.sim.journal import Journal
from pykarpenter.sim.process import OperatorProcess
from pykarpenter.sim.server import ServedCluster
from pykarpenter.sim.server.kubeconfig import remove_kubeconfig, target_problem

_REFRESH_S = 0.25


@click.command("demo", help="Watch pykarpenter buy and give back machines in an embedded cluster; nothing to install.")
@click.option("--exit-when-done", is_flag=True, help="End after the story instead of keeping the cluster up.")
@click.option("--seed", default=1, show_default=True, help="Seed of the simulated cloud.")
@click.option("--plain", is_flag=True, help="Plain lines instead of the live view.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Where to write the kubeconfig.")
def command(exit_when_done: bool, seed: int, plain: bool, kubeconfig: Path | None) -> int:
    path = kubeconfig or _default_kubeconfig()
    if problem := target_problem(path):
        click.echo(f"--kubeconfig: {path}: {problem}", err=True)
        return 1
    try:
        return asyncio.run(_demo(path, seed, exit_when_done=exit_when_done, plain=plain or not sys.stdout.isatty()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0


def _default_kubeconfig() -> Path:
    folder = Path(tempfile.gettempdir()) / f"pykarpenter-demo-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / "kubeconfig"


async def _demo(path: Path, seed: int, *, exit_when_done: bool, plain: bool) -> int:
    # Ended from outside, the demo tidies up as after Ctrl-C.
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    clock = SystemClock()
    options = ClusterOptions(seed=seed, timing=TIMING)
    async with EmbeddedCluster(clock, options) as cluster, ServedCluster(cluster.store, path) as served:
        hint = f"kubectl --kubeconfig {path} get pods,nodes,nodeclaims"
        view: View = PlainView(click.echo) if plain else LiveView(f"try in a second terminal: {hint}")
        view.say(f"the cluster is up; try in a second terminal: {hint}")
        Narrator(Journal(cluster.store), cluster.cloud, clock, view.say)
        process = OperatorProcess(cluster, Settings(disable_leader_election=True, batch_max_duration=5.0))
        process.start()
        story = Story(cluster, view.say)
        painter = asyncio.create_task(_paint(view, story, cluster))
        try:
            code = await _tell(story, view)
            if not exit_when_done:
                view.say("the cluster stays up until you press Ctrl-C")
                await asyncio.Event().wait()
            return code
        finally:
            painter.cancel()
            view.show(story.chapter, take_picture(cluster))
            view.close()
            await process.stop()
            remove_kubeconfig(path, served.url)


async def _tell(story: Story, view: View) -> int:
    try:
        await story.tell()
    except StoryFailed as error:
        view.say(f"the story failed: {error}")
        return 1
    view.say(f"done: at its peak the bill was ${story.peak_price:.2f}/h")
    return 0


async def _paint(view: View, story: Story, cluster: EmbeddedCluster) -> None:
    with suppress(asyncio.CancelledError):
        while True:
            view.show(story.chapter, take_picture(cluster))
            await asyncio.sleep(_REFRESH_S)
