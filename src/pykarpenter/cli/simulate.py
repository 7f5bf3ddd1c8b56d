"""`pykarpenter simulate`: what a cluster would cost and how long pods would wait, a day in seconds."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import click

from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.manifests import ManifestError
from pykarpenter.cli.inputs import documents
from pykarpenter.runtime.settings import BadSettings, Settings, load_settings
from pykarpenter.sim.simulate.run import Result, ScenarioRefused, Summary, simulate
from pykarpenter.sim.simulate.scenario import Scenario, read_scenario
from pykarpenter.sim.simulate.svg import compare, draw

BAD_INPUT = 1
BROKEN = 2
# As Karpenter does it: its packing, its consolidation search, and any saving counts, whatever it moves.
KARPENTER: dict[str, Any] = {
    "packing_effort": "off",
    "consolidation_search": "compatible",
    "eviction_price": 0.0,
    "min_saving": 0.0,
}
KARPENTER_NAME = "Karpenter's way"
FIRST_HOUR_S = 3600.0


@click.command("simulate")
@click.argument("sources", nargs=-1, required=True)
@click.option("--seed", default=1, show_default=True, help="One seed, one history.")
@click.option("--until", default=None, help="Stop after this long, such as 6h; default is the scenario's duration.")
@click.option("--catalog", default="", help="Instance types: demo, kwok or a JSON file; overrides the scenario.")
@click.option(
    "-s", "--set", "given", multiple=True, metavar="NAME=VALUE", help="A setting of `run`, such as min-saving=0.05."
)
@click.option(
    "--beside",
    type=click.Choice(["karpenter"]),
    default=None,
    help="Run the scenario again with Karpenter's packing and consolidation search, and compare.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary and the timeline as JSON.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder for summary.json and timeline.svg."
)
def command(
    sources: tuple[str, ...],
    seed: int,
    until: str | None,
    catalog: str,
    given: tuple[str, ...],
    beside: str | None,
    as_json: bool,
    output: Path | None,
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
        settings = _settings(given)
        result = _run(scenario, seed, settings)
        other = _run(scenario, seed, dataclasses.replace(settings, **KARPENTER)) if beside else None
    except (ManifestError, BadSettings) as error:
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
        (output / "summary.json").write_text(json.dumps(_values(result, other), indent=2) + "\n")
        (output / "timeline.svg").write_text(draw(scenario.name, result.samples))
        if other is not None:
            picture = compare(scenario.name, result.samples, KARPENTER_NAME, other.samples)
            (output / "compared.svg").write_text(picture)
    click.echo(json.dumps(_values(result, other), indent=2) if as_json else _text(result, output))
    if other is not None and not as_json:
        click.echo(_beside(result.summary, other.summary))
    return BROKEN if result.summary.violations else 0


def _settings(given: tuple[str, ...]) -> Settings:
    """Those of `run`, by name."""
    flags = {}
    for text in given:
        name, found, value = text.partition("=")
        if not found:
            raise ManifestError(f"--set: {text!r}: give name=value, such as min-saving=0.05")
        flags[name] = value
    return load_settings(flags, {})[0]


def _values(result: Result, other: Result | None) -> dict[str, Any]:
    return {**result.as_json(), **({"beside": other.as_json()} if other is not None else {})}


def _beside(ours: Summary, theirs: Summary) -> str:
    rows = [
        ("", "pykarpenter", KARPENTER_NAME),
        ("cost", f"${ours.cost:.2f}", f"${theirs.cost:.2f}"),
        ("evictions", str(ours.evictions), str(theirs.evictions)),
        ("launches", str(ours.launches), str(theirs.launches)),
        ("pending p99", f"{ours.pending_p99_s:.1f} s", f"{theirs.pending_p99_s:.1f} s"),
    ]
    return "\n".join(f"{name:13} {mine:>12} {other:>20}" for name, mine, other in rows)


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


def _run(scenario: Scenario, seed: int, settings: Settings) -> Result:
    if not sys.stderr.isatty():
        return simulate(scenario, seed=seed, settings=settings)
    with click.progressbar(length=1000, label=scenario.name, file=sys.stderr) as bar:
        done = 0

        def progress(share: float) -> None:
            nonlocal done
            bar.update(int(share * 1000) - done)
            done = int(share * 1000)

        return simulate(scenario, seed=seed, settings=settings, progress=progress)


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


def _moves(result: Result) -> str:
    """Consolidations that moved pods, and how long the slowest takes to pay for them."""
    if not result.moves:
        return "no pod was moved to save money"
    pods = sum(move.pods for move in result.moves)
    slowest = max((move.paid_back_at - move.at) / 3600 for move in result.moves)
    return f"{len(result.moves)} times {pods} pods in all to save money, paid back within {slowest:.1f} h"


def _settled(result: Result) -> str:
    """The same after the first hour, when a fleet has settled."""
    begin = result.started_at + FIRST_HOUR_S
    end = result.started_at + result.summary.duration_s
    late = [move for move in result.moves if move.at >= begin]
    if not late:
        return "nothing was moved to save money"
    slowest = max((move.paid_back_at - move.at) / 3600 for move in late)
    ahead = sum(move.paid_back_at > end for move in late)
    told = f"{len(late)} times {sum(move.pods for move in late)} pods, each paid back within {slowest:.1f} h"
    return f"{told}, {ahead} of them only after the end" if ahead else told


def _text(result: Result, output: Path | None) -> str:
    summary = result.summary
    rows = [
        ("simulated", f"{summary.duration_s / 3600:.1f} h (seed {summary.seed})"),
        ("cost", f"${summary.cost:.2f}, at most ${summary.peak_price_per_hour:.2f}/h"),
        ("machines", f"{summary.node_hours:.1f} node hours, at most {summary.peak_nodes} nodes at once"),
        ("launches", f"{summary.launches}, given back {summary.terminations}, interrupted {summary.interruptions}"),
        ("bought", _bought(summary.bought)),
        ("pods", f"{summary.pods_scheduled} got a node, {summary.pods_waiting} still wait"),
        ("pending time", f"p50 {summary.pending_p50_s:.1f} s, p99 {summary.pending_p99_s:.1f} s"),
        ("evictions", str(summary.evictions)),
        ("moved", _moves(result)),
        ("after 1 h", _settled(result)),
    ]
    lines = [f"{name:13} {value}" for name, value in rows]
    lines.extend(f"{'broken':13} {violation}" for violation in summary.violations)
    if output is not None:
        lines.append(f"{'written':13} {output / 'summary.json'}, {output / 'timeline.svg'}")
    return "\n".join(lines)
