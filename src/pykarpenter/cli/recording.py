"""Writes down what decisions read of a cluster: one List of its objects, with time, settings and instance types.

Objects are read as subset types, so environment values, arguments, commands and everything else that no decision
reads never reach the file; annotations are kept only from an allow-list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.kinds import Kind
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.cloud.catalog_entries import catalog_entries
from pykarpenter.cloud.errors import CloudError
from pykarpenter.cloud.provider import CloudProvider
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.kube.contract import KubeApi, list_all
from pykarpenter.kube.errors import Forbidden, MethodNotAllowed, NotFound
from pykarpenter.state.manifests import READ_KINDS

# Without these there is nothing to explain.
_OURS = (kinds.NODE_POOL, kinds.NODE_CLAIM)
API_VERSION = f"{labels.OWN_GROUP}/v1alpha1"
KEPT_ANNOTATIONS = frozenset(
    {
        labels.POD_DELETION_COST,
        labels.BIND_COMPLETED,
        "storageclass.kubernetes.io/is-default-class",
        "kubernetes.io/config.mirror",
        "eks-node-viewer/instance-price",
    }
)
KEPT_ANNOTATION_GROUPS = (labels.GROUP, labels.OWN_GROUP, "karpenter.kwok.sh", "karpenter.k8s.aws")


async def record(
    api: KubeApi, provider: CloudProvider, now: float, settings: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """The List, and what could not be read; kinds that a cluster need not serve are left out silently."""
    items: list[dict[str, Any]] = []
    warnings: list[str] = []
    pools: list[NodePool] = []
    for kind in READ_KINDS:
        try:
            objects = await list_all(api, kind)
        except (NotFound, MethodNotAllowed):
            if kind in _OURS:
                name = f"{kind.plural}.{kind.group}"
                warnings.append(f"{name}: not served by this cluster; install it with `pykarpenter crds`")
            continue
        except Forbidden as error:
            warnings.append(f"{kind.plural}: not allowed to list, left out: {error.message}")
            continue
        items.extend(_item(kind, item) for item in sorted(objects, key=lambda item: item.key))
        if kind is kinds.NODE_POOL:
            pools = objects
    items.extend(await _classes(api, provider))
    types = await _types(provider, pools, warnings)
    items.append(_cluster(now, settings, types, provider))
    return {"apiVersion": "v1", "kind": "List", "items": items}, warnings


def _item(kind: Kind[Any], item: Any) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(item)
    _drop_annotations(body)
    return {**body, "apiVersion": kind.api_version, "kind": kind.kind}


def _drop_annotations(value: Any) -> None:
    """Everywhere: templates of workloads and pools carry annotations too."""
    if isinstance(value, list):
        for item in value:
            _drop_annotations(item)
    if not isinstance(value, dict):
        return
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
        metadata["annotations"] = {key: text for key, text in metadata["annotations"].items() if is_kept(key)}
        if not metadata["annotations"]:
            del metadata["annotations"]
    for item in value.values():
        _drop_annotations(item)


def is_kept(annotation: str) -> bool:
    """Whether an annotation may be written down."""
    group = annotation.partition("/")[0]
    return annotation in KEPT_ANNOTATIONS or group in KEPT_ANNOTATION_GROUPS


async def _classes(api: KubeApi, provider: CloudProvider) -> list[dict[str, Any]]:
    """Node classes by name only: what is in them belongs to the provider."""
    found: list[dict[str, Any]] = []
    for item in provider.traits.node_classes:
        kind = kinds.node_class_kind(item.group, item.version, item.kind, item.plural)
        try:
            objects = await list_all(api, kind)
        except (NotFound, MethodNotAllowed, Forbidden):
            continue
        found.extend(
            {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": one.name}} for one in objects
        )
    return found


async def _types(provider: CloudProvider, pools: Iterable[NodePool], warnings: list[str]) -> dict[str, InstanceType]:
    """The types of all pools together; pools of one provider differ in requirements, not in what a type is."""
    found: dict[str, InstanceType] = {}
    for pool in pools:
        try:
            types = await provider.instance_types(pool)
        except (CloudError, ValueError) as error:
            warnings.append(f"nodepool {pool.name}: instance types left out: {error}")
            continue
        for item in types:
            found.setdefault(item.name, item)
    return found


def _cluster(
    now: float, settings: Mapping[str, str], types: Mapping[str, InstanceType], provider: CloudProvider
) -> dict[str, Any]:
    traits = provider.traits
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterSnapshot",
        "metadata": {"name": "recording"},
        "time": format_timestamp(now),
        "provider": traits.name,
        "settings": dict(sorted(settings.items())),
        "instanceTypes": catalog_entries(types.values()),
        "repairPolicies": [
            {
                "conditionType": policy.condition_type,
                "conditionStatus": policy.condition_status,
                "reasonRegex": policy.reason_regex,
                "tolerationSeconds": policy.toleration_s,
                "terminationGracePeriodSeconds": policy.termination_grace_period_s,
                "priority": policy.priority,
                "action": policy.action,
            }
            for policy in traits.repair_policies
        ],
    }
