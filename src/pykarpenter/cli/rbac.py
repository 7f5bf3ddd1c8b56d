"""`pykarpenter rbac`: the roles that `pykarpenter run` needs with the same settings, and nothing beyond."""

from __future__ import annotations

import os

import click
import yaml

from pykarpenter.cli import roles
from pykarpenter.controllers.permissions import needed_permissions
from pykarpenter.runtime.plugins import UnknownProvider, load_plugin
from pykarpenter.runtime.settings import BadSettings, load_settings


@click.command("rbac", help="Print the roles and bindings that `run` needs with these settings.")
@click.option("--provider", envvar="PYKARPENTER_PROVIDER", default="kwok", show_default=True)
@click.option("--namespace", default="karpenter", show_default=True, help="Where the controller runs.")
@click.option("--service-account", default="karpenter", show_default=True, help="Whom the roles are bound to.")
@click.option("--name", default="karpenter", show_default=True, help="Name of the roles and bindings.")
@click.option("--feature-gates", default=None, help="As for `run`; default $FEATURE_GATES.")
def command(provider: str, namespace: str, service_account: str, name: str, feature_gates: str | None) -> None:
    flags = {} if feature_gates is None else {"feature-gates": feature_gates}
    try:
        plugin = load_plugin(provider)
        settings, _ = load_settings(flags, os.environ, plugin.settings)
    except (BadSettings, UnknownProvider, ImportError) as error:
        raise click.ClickException(str(error)) from error
    needed = needed_permissions(settings, plugin.permissions(settings.provider))
    made = roles.manifests(needed, name, namespace, service_account, settings.leader_election_namespace)
    click.echo(yaml.safe_dump_all(made, sort_keys=False), nl=False)
