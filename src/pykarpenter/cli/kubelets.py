"""`pykarpenter kubelets`: the simulated kubelets of the KWOK provider as a process of their own.

Nodes then outlive a controller that crashes. Run the controller with `--kwok-kubelets=external` beside it; what this
process knows is in the cluster, so it can be stopped and started at any time.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

import click

from pykarpenter.cloud.catalog import CatalogError, read_catalog
from pykarpenter.kube.client import HttpApi
from pykarpenter.kube.config import ConfigError, load_config
from pykarpenter.providers.kwok.kubelet import Kubelets
from pykarpenter.providers.kwok.publish import DriverPublisher
from pykarpenter.runtime import logs
from pykarpenter.runtime.clock import SystemClock


@click.command("kubelets", help="Keep the KWOK provider's nodes Ready and run the pods bound to them.")
@click.option("--kubeconfig", default="", envvar="KUBECONFIG", help="The cluster to work on.")
@click.option("--kube-client-qps", type=click.IntRange(1), default=200, envvar="KUBE_CLIENT_QPS", show_default=True)
@click.option("--kube-client-burst", type=click.IntRange(1), default=300, envvar="KUBE_CLIENT_BURST", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "error"]),
    default="info",
    envvar="LOG_LEVEL",
    show_default=True,
)
@click.option(
    "--instance-types-file-path",
    default="",
    envvar="INSTANCE_TYPES_FILE_PATH",
    help="The provider's catalogue, for volume limits and devices; empty is the built-in one.",
)
def command(
    kubeconfig: str, kube_client_qps: int, kube_client_burst: int, log_level: str, instance_types_file_path: str
) -> None:
    clock = SystemClock()
    try:
        config = load_config(clock) if not kubeconfig else load_config(clock, environ={"KUBECONFIG": kubeconfig})
        catalog = read_catalog(instance_types_file_path or "kwok")
    except (ConfigError, CatalogError) as error:
        raise click.ClickException(str(error)) from error
    logs.configure(level=log_level)

    async def main() -> None:
        async with HttpApi(config, clock=clock, qps=kube_client_qps, burst=kube_client_burst) as api:
            await _until_stopped(Kubelets(api, clock, publishers=[DriverPublisher(api, catalog)]))

    asyncio.run(main())


async def _until_stopped(kubelets: Kubelets) -> None:
    """Work until SIGTERM or SIGINT; nothing needs to be given back."""
    work = asyncio.current_task()
    assert work is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    logs.get_logger(controller="kwok.kubelets").info("starting simulated kubelets")
    with suppress(asyncio.CancelledError):
        await kubelets.run()
