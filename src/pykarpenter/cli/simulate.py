"""`pykarpenter simulate`: what a cluster would cost and how long pods would wait, a day in seconds."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click

from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.manifests import ManifestError
from pykarpenter.cli.inputs import documents
from pykarpenter.sim.simulate.run import Result, ScenarioRefused, Summary, simulate
from pykarpenter.sim.simulate.scenario import Scenario, read_scenario
from pykarpenter.sim.simulate.svg import draw

BAD_INPUT = 1
BROKEN = 2


@click.command("simulate")
@click.argument("sources", nargs=-1, required=True)
@click.option("--seed", default=1, show_default=True, help="One seed, one history.")
@click.option("--until", default=None, help="Stop after this long, such as 6h; default is the scenario's duration.")
@click.option("--catalog", default="", help="Instance types: demo, kwok or a JSON file; overrides the scenario.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary and the timeline as JSON.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder for summary.json and timeline.svg."
)
def command(
    sources: tuple[str, ...], seed: int, until: str | None, catalog: str, as_json: bool, output: Path | None
) -> int:
    """Run a scenario, a snapshot or plain manifests in the embedded cluster, on virtual time.

    Exit status: 0 when done, 1 on bad input, 2 when an invariant was broken on the way.
    """
    try:
        found = list(documents(sources))
        if not found:
            raise ManifestError(f"{', '.join(sources)}: holds no objects; give a scenario, a snapshot or manifests")
        scenario = _bounded(read_scenario(found, catalog=catalog), until)
        if scenario.skipped:
            listed = ", ".join(f"{count} {kind}" for kind, count in scenario.skipped)
            click.echo(f"skipped: {listed}", err=True)
        for line in scenario.warnings:
            click.echo(f"warning: {line}", err=True)
        result = _run(scenario, seed)
    except ManifestError as error:
        click.echo(str(error), err=True)
        return BAD_INPUT
    except ExceptionGroup as group:
        click.echo(f"{', '.join(sources)}: {_first(group)}", err=True)
        return BAD_INPUT
    except ScenarioRefused as error:
        click.echo(f"{', '.join(sources)}: {error}", err=True)
        return BAD_INPUT
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "summary.json").write_text(json.dumps(result.as_json(), indent=2) + "\n")
        (output / "timeline.svg").write_text(draw(scenario.name, result.samples))
    click.echo(json.dumps(result.as_json(), indent=2) if as_json else _text(result.summary, output))
    return BROKEN if result.summary.violations else 0


def _bounded(scenario: Scenario, until: str | None) -> Scenario:
    if until is None:
        return scenario
    try:
        seconds = parse_duration(until)
    except InvalidDuration:
        seconds = None
    if not seconds or seconds <= 0:
        raise ManifestError(f"--until: {until!r}: give a positive duration such as 90m or 6h")
    return dataclasses.replace(scenario, duration_s=seconds)


def _run(scenario: Scenario, seed: int) -> Result:
    if not sys.stderr.isatty():
        return simulate(scenario, seed=seed)
    with click.progressbar(length=1000, label=scenario.name, file=sys.stderr) as bar:
        done = 0

        def progress(share: float) -> None:
            nonlocal done
            bar.update(int(share * 1000) - done)
            done = int(share * 1000)

        return simulate(scenario, seed=seed, progress=progress)


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ScenarioRefused):
        return str(error)
    raise error


def _bought(types: dict[str, int], most: int = 6) -> str:
    listed = [f"{count} × {name}" for name, count in list(types.items())[:most]]
    left = sum(list(types.values())[most:])
    return ", ".join([*listed, *([f"{left} others"] if left else [])]) or "nothing"


def _text(summary: Summary, output: Path | None) -> str:
    rows = [
        ("simulated", f"{summary.duration_s / 3600:.1f} h (seed {summary.seed})"),
        ("cost", f"${summary.cost:.2f}, at most ${summary.peak_price_per_hour:.2f}/h"),
        ("machines", f"{summary.node_hours:.1f} node hours, at most {summary.peak_nodes} nodes at once"),
        ("launches", f"{summary.launches}, given back {summary.terminations}, interrupted {summary.interruptions}"),
        ("bought", _bought(summary.bought)),
        ("pods", f"{summary.pods_scheduled} got a node, {summary.pods_waiting} still wait"),
        ("pending time", f"p50 {summary.pending_p50_s:.1f} s, p99 {summary.pending_p99_s:.1f} s"),
        ("evictions", str(summary.evictions)),
    ]
    lines = [f"{name:13} {value}" for name, value in rows]
    lines.extend(f"{'broken':13} {violation}" for violation in summary.violations)
    if output is not None:
        lines.append(f"{'written':13} {output / 'summary.json'}, {output / 'timeline.svg'}")
    return "\n".join(lines)
