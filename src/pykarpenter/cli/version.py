"""`pykarpenter version`: which version runs, on what, and which Karpenter it follows."""

from __future__ import annotations

import json
import platform

import click

from pykarpenter import KARPENTER_COMPATIBILITY, __version__
from pykarpenter.runtime.commit import build_commit


@click.command("version", help="Print the version, the Python it runs on and the Karpenter release it follows.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(output: str) -> None:
    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "karpenter": KARPENTER_COMPATIBILITY,
        "commit": build_commit(),
    }
    if output == "json":
        click.echo(json.dumps(facts))
    else:
        commit = f", commit {facts['commit']}" if facts["commit"] else ""
        click.echo(f"pykarpenter {facts['version']} (python {facts['python']}, karpenter {facts['karpenter']}{commit})")
