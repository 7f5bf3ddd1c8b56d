"""`pykarpenter run`: the controller, on the cluster that the kubeconfig or the pod's service account names.

Every setting is a flag and an environment variable. Usage errors and bad settings are reported all at once and exit 1;
so does a cluster that cannot be served. When the lease is lost everything is dropped, and the process stands for
election again with a new identity and nothing remembered, as if it had been restarted.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from pykarpenter import __version__
from pykarpenter.cloud.plugin import BuiltProvider, Setting
from pykarpenter.controllers.operator import LeaseLost, Operator, elector_for
from pykarpenter.controllers.startup_checks import device_problem, needed_kinds, unserved_kinds, version_problem
from pykarpenter.kube.client import HttpApi
from pykarpenter.kube.config import ClusterConfig, ConfigError, load_config
from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.dry_run import DryRunApi
from pykarpenter.kube.errors import ApiError
from pykarpenter.kube.fence import FencedApi
from pykarpenter.kube.leases import LeaderElector, new_identity
from pykarpenter.runtime import logs
from pykarpenter.runtime.clock import SteadyClock, SystemClock
from pykarpenter.runtime.garbage import GarbagePause, collect_what_was_frozen, freeze_what_stays
from pykarpenter.runtime.health import Endpoints
from pykarpenter.runtime.lag import LoopLag
from pykarpenter.runtime.metrics import MetricsRegistry
from pykarpenter.runtime.observer import observing
from pykarpenter.runtime.offload import InThread
from pykarpenter.runtime.plugins import Plugin, UnknownProvider, load_plugin, provider_names
from pykarpenter.runtime.settings import ALL_SETTINGS, BadSettings, Settings, load_settings
from pykarpenter.runtime.shutdown import ShutdownTimeout, run_until_stopped

# An API server that is just restarting should not make the program give up.
_CHECK_ATTEMPTS = 10
_CHECK_RETRY_S = 3.0


class CannotRun(click.ClickException):
    """Why the program does not start or stopped, one line each."""

    exit_code = 1

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n  ".join(["cannot run:", *problems]))


def _run(ctx: click.Context, provider: str | None, kubeconfig: str, context: str, **given: str | None) -> None:
    plugin, problems = _plugin(provider)
    flags = {name.replace("_", "-"): value for name, value in given.items() if value is not None}
    extra, unreadable = parse_flags(ctx.args, plugin.settings if plugin is not None else ())
    problems.extend(unreadable)
    settings = Settings()
    warnings: list[str] = []
    try:
        own = plugin.settings if plugin is not None else ()
        settings, warnings = load_settings({**flags, **extra}, os.environ, own)
    except BadSettings as error:
        problems.extend(error.problems)
    clock = SystemClock()
    config: ClusterConfig | None = None
    try:
        config = load_config(clock, kubeconfig=kubeconfig, context=context)
    except ConfigError as error:
        problems.append(str(error))
    if problems or plugin is None or config is None:
        raise CannotRun(problems)
    logs.configure(
        settings.log_level,
        clock=clock,
        output_paths=",".join(settings.log_output_paths),
        error_output_paths=",".join(settings.log_error_output_paths),
    )
    log = logs.get_logger(controller="operator")
    for warning in warnings:
        log.info(warning)
    log.info("starting", version=__version__, provider=plugin.name, gates=settings.feature_gates.enabled())
    if not settings.leader_election_namespace:
        settings = replace(settings, leader_election_namespace=config.namespace)
    try:
        asyncio.run(_Process(settings, plugin, config, clock).run())
    except (ShutdownTimeout, StartRefused) as error:
        log.error("stopped", error=error)
        raise CannotRun(str(error).splitlines()) from error


class StartRefused(RuntimeError):
    """The cluster or the provider cannot be served; the message says all that is wrong."""


class _Process:
    """Everything that lives as long as the process: clients, endpoints, and the operator."""

    def __init__(self, settings: Settings, plugin: Plugin, config: ClusterConfig, clock: SystemClock) -> None:
        self._settings = settings
        self._plugin = plugin
        self._config = config
        self._wall = clock
        # What is decided by age goes by the server's time, whatever happens to the clock of this machine.
        self._clock = SteadyClock(clock)
        self._metrics = MetricsRegistry(clock)
        self._has_started = False
        self._operated = False
        self._log = logs.get_logger(controller="operator")

    async def run(self) -> None:
        """Until SIGTERM or SIGINT, or a start that is refused."""
        await run_until_stopped(self._serve)

    async def _serve(self) -> None:
        settings = self._settings
        endpoints = Endpoints(
            self._metrics.stream, settings.metrics_port, settings.health_probe_port, settings.enable_profiling
        )
        endpoints.checks["caches"] = lambda: "not started"
        try:
            await endpoints.start()
        except OSError as error:
            raise StartRefused(f"cannot serve metrics and probes: {error}") from error
        lag = asyncio.create_task(LoopLag(self._note_lag).run(), name="loop-lag")
        offload = InThread()
        try:
            async with self._client(settings.kube_client_qps) as api, self._client(0) as lease_api:
                await self._control(api, lease_api, offload, endpoints)
        finally:
            lag.cancel()
            offload.close()
            await endpoints.stop()

    def _client(self, qps: float) -> HttpApi:
        burst = self._settings.kube_client_burst
        return HttpApi(
            self._config,
            clock=self._wall,
            qps=qps,
            burst=burst,
            observer=self._metrics,
            tell_time=self._clock.follow,
        )

    async def _control(self, api: HttpApi, lease_api: HttpApi, offload: InThread, endpoints: Endpoints) -> None:
        while True:
            try:
                await self._operate(api, lease_api, offload, endpoints)
            except LeaseLost as error:
                self._log.error("starting over", error=error)

    async def _operate(self, api: HttpApi, lease_api: HttpApi, offload: InThread, endpoints: Endpoints) -> None:
        # Leader election has a client of its own: its requests never queue behind the work it guards.
        elector = elector_for(lease_api, self._clock, self._settings, new_identity(), observer=self._metrics)
        built = await self._build(api, elector)
        await self._check(api, built)
        with observing(self._metrics):
            operator = Operator(
                api,
                built.provider,
                self._clock,
                self._settings,
                elector=elector,
                background=built.background,
                offload=offload,
                metrics=self._metrics,
                observer=self._metrics,
                garbage=GarbagePause(),
                tables=self._metrics,
            )
        endpoints.checks["caches"] = lambda: None if operator.is_ready else ", ".join(operator.watches.unsynced())
        if self._operated:
            # Endpoints and metrics have let go of the one before; in a large cluster that is most of the memory.
            collect_what_was_frozen()
        self._operated = True
        settling = asyncio.create_task(freeze_what_stays(operator.watches.wait_synced), name="settling")
        try:
            await operator.run()
        finally:
            settling.cancel()

    async def _build(self, api: HttpApi, elector: LeaderElector) -> BuiltProvider:
        """The provider writes through the same fence as the controllers."""
        writer: KubeApi = api
        if not self._settings.disable_leader_election:
            writer = FencedApi(api, elector, self._metrics)
        if self._settings.dry_run:
            writer = DryRunApi(api)
        try:
            return await self._plugin.build(writer, self._clock, self._settings.provider)
        except ValueError as error:
            raise StartRefused(f"provider {self._plugin.name}: {error}") from error

    async def _check(self, api: HttpApi, built: BuiltProvider) -> None:
        for attempt in itertools.count(1):
            try:
                problem = version_problem(await api.server_version())
                unserved = await unserved_kinds(api, needed_kinds(self._settings, built.provider.traits))
                devices = await device_problem(api, self._settings)
            except (ApiError, OSError) as error:
                # Only a start gives up: a server that was there before will come back.
                if attempt == _CHECK_ATTEMPTS and not self._has_started:
                    raise StartRefused(f"the API server at {self._config.server} does not answer: {error}") from error
                self._log.error("the cluster cannot be checked yet", error=error)
                await asyncio.sleep(_CHECK_RETRY_S)
                continue
            problems = [*([problem] if problem else []), *unserved, *([devices] if devices else [])]
            if problems:
                raise StartRefused("\n".join(problems))
            self._has_started = True
            return

    def _note_lag(self, seconds: float) -> None:
        self._metrics.observe("pykarpenter_loop_lag_seconds", {}, seconds)


def _plugin(name: str | None) -> tuple[Plugin | None, list[str]]:
    if name is None:
        return None, [f"--provider is missing: installed providers are {', '.join(provider_names())}"]
    try:
        return load_plugin(name), []
    except (UnknownProvider, ImportError) as error:
        return None, [f"--provider: {error}"]


def parse_flags(arguments: Sequence[str], known: Sequence[Setting]) -> tuple[dict[str, str], list[str]]:
    """Flags that the command line does not declare, because only the chosen provider knows them; and all problems."""
    by_flag = {item.flag: item for item in known}
    flags: dict[str, str] = {}
    problems: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, has_value, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--"):
            problems.append(f"unexpected argument {argument!r}")
        elif name not in by_flag:
            problems.append(f"--{name}: unknown flag")
        elif has_value:
            flags[name] = value
        elif by_flag[name].is_switch:
            flags[name] = "true"
        elif rest:
            flags[name] = rest.pop(0)
        else:
            problems.append(f"--{name}: needs a value")
    return flags, problems


def _option(item: Setting) -> click.Option:
    how: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if item.is_switch else {}
    default = f"default {item.default}" if item.default else "default empty"
    return click.Option([f"--{item.flag}"], default=None, help=f"{item.help} [{item.env}; {default}]", **how)


command = click.Command(
    "run",
    callback=click.pass_context(_run),
    help="Run the controller on a cluster. Providers add flags of their own: see docs/settings.md.",
    params=[
        click.Option(["--provider"], envvar="PYKARPENTER_PROVIDER", help="Which cloud: an installed provider's name."),
        click.Option(["--kubeconfig"], default="", help="File with the cluster to work on; default $KUBECONFIG."),
        click.Option(["--context"], default="", help="Context of the kubeconfig; default its current one."),
        *(_option(item) for item in ALL_SETTINGS),
    ],
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
