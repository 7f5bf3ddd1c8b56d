"""`pykarpenter release`: leave without losing a machine."""

from __future__ import annotations

import asyncio

import click

from pykarpenter.controllers.release import Released, StillLed, release
from pykarpenter.kube.client import HttpApi
from pykarpenter.kube.config import ConfigError, load_config
from pykarpenter.kube.errors import ApiError
from pykarpenter.runtime.clock import SystemClock


@click.command("release")
@click.option("--kubeconfig", default="", envvar="KUBECONFIG", help="The cluster to work on.")
@click.option(
    "--leader-election-name", default="karpenter-leader-election", envvar="LEADER_ELECTION_NAME", show_default=True
)
@click.option(
    "--leader-election-namespace",
    default="",
    envvar="LEADER_ELECTION_NAMESPACE",
    help="Where the Lease is looked for.  [default: every namespace]",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be let go.")
def command(kubeconfig: str, leader_election_name: str, leader_election_namespace: str, dry_run: bool) -> None:
    """Take finalizers and owner references off NodeClaims and Nodes; the machines stay.

    Stop the controller first: the command refuses while its lease is held. Afterwards NodePools, NodeClaims and the
    CRDs can be deleted without any machine or pod being touched.
    """
    clock = SystemClock()
    try:
        config = load_config(clock) if not kubeconfig else load_config(clock, environ={"KUBECONFIG": kubeconfig})
    except ConfigError as error:
        raise click.ClickException(str(error)) from error

    async def main() -> Released:
        async with HttpApi(config, clock=clock) as api:
            return await release(
                api,
                clock,
                lease_name=leader_election_name,
                lease_namespace=leader_election_namespace,
                dry_run=dry_run,
            )

    try:
        result = asyncio.run(main())
    except (StillLed, ApiError) as error:
        raise click.ClickException(str(error)) from error
    for name in result.released:
        click.echo(f"{'would release' if dry_run else 'released'} {name}")
    if result.deleting:
        listed = ", ".join(result.deleting)
        raise click.ClickException(f"left alone, because they are being deleted: {listed}")
