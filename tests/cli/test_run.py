"""`pykarpenter run` before it runs: what is wrong is said at once, and nothing starts half-way."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from pykarpenter.api import crds, kinds
from pykarpenter.cli.main import cli
from pykarpenter.cli.run import parse_flags
from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.cloud.plugin import Setting
from pykarpenter.controllers.startup_checks import device_problem, needed_kinds, unserved_kinds, version_problem
from pykarpenter.kube.errors import NotFound
from pykarpenter.providers.kwok.provider import KwokProvider
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.settings import ALL_SETTINGS, Settings
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.api import StoreApi
from pykarpenter.sim.store import Store


def run(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(cli, ["run", *arguments], env={"KUBECONFIG": "/nonexistent/config", **env})


def test_b37_bad_flags_settings_and_configuration_are_reported_at_once() -> None:
    result = run(
        "--provider=kwok",
        "--log-level=loud",
        "--no-such=1",
        "stray",
        "--kwok-kubelets",
        "none",
        BATCH_MAX_DURATION="soon",
    )
    assert result.exit_code == 1
    for problem in ("--log-level", "--no-such: unknown flag", "'stray'", "--kwok-kubelets", "BATCH_MAX_DURATION"):
        assert problem in result.output, problem
    assert "/nonexistent/config" in result.output


def test_unknown_provider_names_those_that_are_installed() -> None:
    result = run("--provider=nimbus")
    assert result.exit_code == 1
    assert "unknown provider 'nimbus': installed providers are kwok" in result.output


def test_missing_provider_is_a_usage_error() -> None:
    result = run()
    assert result.exit_code == 1 and "--provider is missing" in result.output


def test_help_names_every_setting_with_its_variable_and_default() -> None:
    text = " ".join(CliRunner().invoke(cli, ["run", "--help"], terminal_width=200).output.split())
    for item in ALL_SETTINGS:
        assert f"--{item.flag}" in text and item.env in text


def test_provider_flags_are_read_in_every_spelling() -> None:
    known = (Setting("size", "SIZE", "", ""), Setting("fast", "FAST", "false", "", is_switch=True))
    assert parse_flags(["--size=3", "--fast"], known) == ({"size": "3", "fast": "true"}, [])
    assert parse_flags(["--fast=false", "--size", "4"], known) == ({"size": "4", "fast": "false"}, [])
    assert parse_flags(["--size"], known)[1] == ["--size: needs a value"]


@pytest.mark.parametrize(
    ("version", "ok"), [("1.28", False), ("1.29", True), ("1.36", True), ("2.0", True), ("", True)]
)
def test_b38_too_old_a_kubernetes_refuses_the_start(version: str, ok: bool) -> None:
    problem = version_problem(version)
    assert (problem is None) == ok
    assert problem is None or (version in problem and "1.29" in problem)


def test_b38_kinds_that_are_not_served_are_listed_with_the_versions_found() -> None:
    async def main() -> None:
        clock = running_clock()
        api = StoreApi(Store(clock))
        traits = KwokProvider(api, clock, read_catalog("kwok")).traits
        needed = needed_kinds(Settings(), traits)
        missing = await unserved_kinds(api, needed)
        assert len(missing) == 3 and "pykarpenter crds" in missing[0]
        assert missing[0].startswith("NodePool is not served as karpenter.sh/v1 (found: none)")
        for manifest in crds.crds():
            await api.create(kinds.CRD, manifest)
        assert await unserved_kinds(api, needed) == []

    run_virtual(main())


def test_b38_old_definition_is_named_with_its_version() -> None:
    async def main() -> None:
        clock = running_clock()
        api = StoreApi(Store(clock))
        old = next(manifest for manifest in crds.crds() if manifest["spec"]["names"]["kind"] == "NodePool")
        old["spec"]["versions"][0]["name"] = "v1beta1"
        await api.create(kinds.CRD, old)
        (problem,) = await unserved_kinds(api, [kinds.NODE_POOL])
        assert "found: v1beta1" in problem

    run_virtual(main())


def test_devices_need_a_kubernetes_that_serves_them() -> None:
    """Kubernetes before 1.34 serves other versions; watching ours would never sync."""

    class Old(StoreApi):
        async def list_page(self, kind: Any, *args: Any, **kwargs: Any) -> Any:
            raise NotFound("the server could not find the requested resource")

    async def main() -> None:
        on = Settings(ignore_dra_requests=False)
        store = Store(running_clock())
        assert await device_problem(StoreApi(store), on) is None
        assert await device_problem(Old(store), Settings()) is None
        assert "needs Kubernetes 1.34" in (await device_problem(Old(store), on) or "")

    run_virtual(main())


def test_gates_need_their_kinds() -> None:
    async def main() -> None:
        clock = running_clock()
        traits = KwokProvider(StoreApi(Store(clock)), clock, read_catalog("kwok")).traits
        settings = Settings(feature_gates=FeatureGates(node_overlay=True, capacity_buffer=True))
        assert {kind.kind for kind in needed_kinds(settings, traits)} >= {"NodeOverlay", "CapacityBuffer"}

    run_virtual(main())
