"""What the drivers on a simulated machine publish: a CSINode with volume limits, ResourceSlices with devices.

Both come from the instance type in the catalogue, belong to the Node and go with it. Publishing again changes
nothing, so every start of the kubelets may repeat it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.devices import ResourceSliceSpec
from pykarpenter.api.kinds import CSI_NODE, RESOURCE_SLICE
from pykarpenter.api.nodes import Node
from pykarpenter.cloud.catalog import Catalog
from pykarpenter.core.instance_types import by_name
from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.errors import AlreadyExists, NotFound

_SCOPES = frozenset({"nodeSelector", "allNodes", "perDeviceNodeSelection"})


class DriverPublisher:
    """One for all machines of a catalogue; call it with each Node that turns Ready."""

    def __init__(self, api: KubeApi, catalog: Catalog) -> None:
        self._api = api
        self._types = by_name(catalog.types)

    async def __call__(self, node: Node) -> None:
        found = self._types.get(node.metadata.labels.get(labels.INSTANCE_TYPE, ""))
        if found is None:
            return
        if found.volume_attachment_limits:
            with suppress(AlreadyExists):
                await self._api.create(CSI_NODE, csi_node(node, dict(found.volume_attachment_limits)))
        for body in resource_slices(node, found.dynamic_resources):
            # A cluster without dynamic resource allocation does not serve the kind.
            with suppress(AlreadyExists, NotFound):
                await self._api.create(RESOURCE_SLICE, body)


def csi_node(node: Node, limits: dict[str, int]) -> dict[str, Any]:
    drivers = [
        {"name": name, "nodeID": node.name, "topologyKeys": None, "allocatable": {"count": count}}
        for name, count in sorted(limits.items())
    ]
    return {
        "apiVersion": CSI_NODE.api_version,
        "kind": CSI_NODE.kind,
        "metadata": {"name": node.name, "ownerReferences": [_owner(node)]},
        "spec": {"drivers": drivers},
    }


def resource_slices(node: Node, templates: tuple[ResourceSliceSpec, ...]) -> list[dict[str, Any]]:
    """One slice for each template: the templates of a driver with the same pool name make up one pool of the node."""
    counts: dict[tuple[str, str], int] = {}
    for template in templates:
        key = (template.driver, template.pool.name)
        counts[key] = counts.get(key, 0) + 1
    bodies: list[dict[str, Any]] = []
    for index, template in enumerate(templates):
        driver, name = template.driver, template.pool.name
        # The machine's devices are its own, wherever the template would have them.
        spec = {key: value for key, value in msgspec.to_builtins(template).items() if key not in _SCOPES}
        pool = {
            "name": f"{node.name}/{name}" if name else node.name,
            "generation": 1,
            "resourceSliceCount": counts[driver, name],
        }
        bodies.append(
            {
                "apiVersion": RESOURCE_SLICE.api_version,
                "kind": RESOURCE_SLICE.kind,
                "metadata": {"name": f"{node.name}-{index}", "ownerReferences": [_owner(node)]},
                "spec": {**spec, "nodeName": node.name, "pool": pool},
            }
        )
    return bodies


def _owner(node: Node) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
