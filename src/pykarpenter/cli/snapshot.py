"""`pykarpenter snapshot`: everything a decision needs in one file, for bug reports and tests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import yaml

from pykarpenter.cli.sources import DECISION_FLAGS, CannotRead, given, record_live
from pykarpenter.kube.config import ConfigError
from pykarpenter.kube.errors import ApiError
from pykarpenter.runtime.plugins import UnknownProvider
from pykarpenter.runtime.settings import BadSettings

# The compiled writer where there is one: a large cluster takes seconds instead of minutes.
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _flags() -> list[click.Option]:
    return [click.Option([f"--{name}"], default=None, help="As for `run`; written down.") for name in DECISION_FLAGS]


@click.command("snapshot")
@click.option("--kubeconfig", default="", help="The cluster to look at.")
@click.option("--context", default="", help="The kubeconfig's context.")
@click.option("--provider", default="kwok", show_default=True, help="Whose instance types to write down.")
@click.option("-o", "--output", "target", default="-", show_default=True, help=".yaml or .json file; - is stdout.")
def command(kubeconfig: str, context: str, provider: str, target: str, **flags: str | None) -> None:
    """Write what decisions read of a cluster to one file that `plan` and `explain` read.

    Environment values, arguments and annotations outside an allow-list are left out.
    """
    try:
        listed, warnings = asyncio.run(record_live(kubeconfig, context, provider, given(flags)))
    except (ConfigError, UnknownProvider, ImportError, BadSettings) as error:
        raise CannotRead(str(error)) from error
    except ApiError as error:
        raise CannotRead(f"the cluster does not answer: {error}") from error
    for line in warnings:
        click.echo(f"warning: {line}", err=True)
    if target.endswith(".json"):
        text = json.dumps(listed, indent=1) + "\n"
    else:
        text = yaml.dump(listed, Dumper=_DUMPER, sort_keys=False)
    if target == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotRead(f"-o {target}: cannot be written: {error.strerror or error}") from error
    click.echo(f"wrote {len(listed['items'])} objects to {target}", err=True)


command.params.extend(_flags())
