"""`pykarpenter consolidate`: the commands that would make the fleet cheaper, verified; nothing is changed.

On the live cluster or a snapshot file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from pykarpenter.cli.consolidate_output import lines, picture, values
from pykarpenter.cli.sources import CannotRead, given, load, options
from pykarpenter.core.disruption.engine import PackingSimulations
from pykarpenter.core.disruption.fleet_savings import Wishes, fleet_savings
from pykarpenter.core.packing.what_if import WhatIfBase
from pykarpenter.runtime.settings import BadSettings, load_settings

_OWN = ("files", "kubeconfig", "context", "provider", "catalog")


@click.command("consolidate")
@options
@click.option("--consolidation-replacements", default=None, help="one or many machines for one command.")
@click.option("--svg", type=click.Path(dir_okay=False), default=None, help="Draw cost against evictions into a file.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(consolidation_replacements: str | None, svg: str | None, output: str, **where: Any) -> None:
    """Show which nodes could go and what that saves; never acts."""
    flags = given({name: value for name, value in where.items() if name not in _OWN})
    wanted = given({"consolidation_replacements": consolidation_replacements})
    try:
        settings, _ = load_settings(wanted, os.environ)
    except BadSettings as error:
        raise CannotRead(str(error)) from error
    source = load(where["files"], where["kubeconfig"], where["context"], where["provider"], where["catalog"], flags)
    price = source.disruption.eviction_price
    answer = fleet_savings(
        source.world(),
        PackingSimulations(source.packing)(source.snapshot),
        WhatIfBase(source.snapshot, source.packing),
        Wishes(price, settings.consolidation_replacements == "many"),
        lambda: False,
    )
    if svg is not None:
        Path(svg).write_text(picture(answer), encoding="utf-8")
    if output == "json":
        click.echo(json.dumps(values(answer, price), indent=2))
    else:
        click.echo("\n".join(lines(answer, price)))
