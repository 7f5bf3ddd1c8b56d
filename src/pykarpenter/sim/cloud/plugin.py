"""The entry point `sim`: a cloud in this process, for clusters that have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.cloud.permissions import READ, Permission, definitions
from pykarpenter.cloud.plugin import BackgroundTask, BuiltProvider, Setting
from pykarpenter.kube.contract import KubeApi, Selection
from pykarpenter.providers.kwok.kubelet import KubeletOptions, Kubelets
from pykarpenter.providers.kwok.permissions import KUBELETS
from pykarpenter.runtime.clock import Clock
from pykarpenter.sim.cloud.cloud import SimCloud
from pykarpenter.sim.cloud.instances import NODE_LABEL
from pykarpenter.sim.cloud.market import Market
from pykarpenter.sim.cloud.provider import SimProvider

CATALOG = Setting(
    "sim-catalog", "SIM_CATALOG", "demo", "instance types of the simulated cloud: demo, kwok or a .json file"
)
SEED = Setting("sim-seed", "SIM_SEED", "1", "seed of the simulated cloud's timing and prices", int)

PERMISSIONS: tuple[Permission, ...] = (
    Permission("pykarpenter.sh", "simnodeclasses", READ),
    definitions("simnodeclasses.pykarpenter.sh"),
    Permission("", "nodes", ("create",)),
    Permission("", "nodes/status", ("patch",)),
)


class SimPlugin:
    """Satisfies `cloud.plugin.ProviderPlugin`. Its machines live only as long as this process."""

    name = "sim"
    settings: tuple[Setting, ...] = (CATALOG, SEED)

    def permissions(self, settings: Mapping[str, Any]) -> tuple[Permission, ...]:
        return PERMISSIONS + KUBELETS

    async def build(self, api: KubeApi, clock: Clock, settings: Mapping[str, Any]) -> BuiltProvider:
        """Raises ValueError (CatalogError) for a catalogue that cannot be read."""
        seed = int(settings.get(SEED.flag) or 1)
        market = Market(read_catalog(settings.get(CATALOG.flag) or "demo"), seed=seed)
        cloud = SimCloud(api, clock, market, seed=seed)
        options = KubeletOptions(nodes=Selection(label_selector=f"{NODE_LABEL}=true"))
        kubelets = Kubelets(api, clock, options)
        return BuiltProvider(SimProvider(api, clock, cloud), (BackgroundTask("sim.kubelets", kubelets.run),))
