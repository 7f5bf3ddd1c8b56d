"""`pykarpenter crds`: print the CustomResourceDefinitions, ready for `kubectl apply -f -`."""

from __future__ import annotations

import json

import click
import yaml

from pykarpenter.api.crds import DEFAULT_PROVIDER, PROVIDERS, crds


class _Plain(yaml.SafeDumper):
    """Repeated parts are written out: anchors would be legal but unreadable."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@click.command("crds", help="Print the CRD manifests for a provider.")
@click.option("--provider", type=click.Choice(sorted(PROVIDERS)), default=DEFAULT_PROVIDER, show_default=True)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(provider: str, output: str) -> None:
    manifests = crds(provider)
    if output == "json":
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}, indent=2))
    else:
        click.echo(yaml.dump_all(manifests, Dumper=_Plain, sort_keys=False, explicit_start=True, width=120), nl=False)
