"""Behaviours on the embedded cluster: the store with its scheduler and controllers, on virtual time, without kubelets.

The real cluster of the end-to-end tests has no kubelets either, so both answer from the same parts.
"""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.kube.contract import Selection
from pykarpenter.providers.kwok.kubelet import KubeletOptions
from pykarpenter.runtime.virtual_loop import run_virtual, running_clock
from pykarpenter.sim.cluster import ClusterOptions, EmbeddedCluster

from .behaviours import Behaviour
from .sides import Finding, Side

NO_KUBELETS = KubeletOptions(nodes=Selection(label_selector="kubelet=none-here"))


def try_embedded(behaviour: Behaviour) -> list[Finding]:
    """What one behaviour finds on a fresh embedded cluster."""

    async def main() -> list[Finding]:
        async with EmbeddedCluster(running_clock(), ClusterOptions(provider="kwok", kubelet=NO_KUBELETS)) as cluster:

            async def forget() -> None:
                cluster.store.compact()

            await cluster.api.create(kinds.NAMESPACE, {"metadata": {"name": "behaviour"}})
            side = Side(cluster.api, "behaviour", forget)
            await behaviour(side)
            return side.findings

    return run_virtual(main())
