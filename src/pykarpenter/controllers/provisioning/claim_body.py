"""The NodeClaim that a planned claim becomes: everything that is written at its creation, and nothing later."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.nodepool_hash import nodepool_hash
from pykarpenter.api.pods import NodeSelectorRequirement
from pykarpenter.api.quantity import format_quantities
from pykarpenter.core.plans import PlannedClaim
from pykarpenter.kube.contract import Json


def claim_body(planned: PlannedClaim, pool: NodePool, name: str, plan_id: str) -> Json:
    """The body to create; the finalizer is left to the lifecycle, which adds it before anything is launched."""
    template = pool.spec.template
    reference = template.spec.node_class_ref
    spec: Json = {
        "nodeClassRef": {"group": reference.group, "kind": reference.kind, "name": reference.name},
        "requirements": _wire(_with_types(planned)),
        "resources": {"requests": format_quantities(planned.requests)},
    }
    if template.spec.taints:
        spec["taints"] = _wire(template.spec.taints)
    if template.spec.startup_taints:
        spec["startupTaints"] = _wire(template.spec.startup_taints)
    if template.spec.expire_after is not None:
        spec["expireAfter"] = template.spec.expire_after
    if template.spec.termination_grace_period is not None:
        spec["terminationGracePeriod"] = template.spec.termination_grace_period
    return {
        "apiVersion": kinds.NODE_CLAIM.api_version,
        "kind": kinds.NODE_CLAIM.kind,
        "metadata": {
            "name": name,
            "generateName": f"{pool.name}-",
            "labels": _labels(planned, pool),
            "annotations": _annotations(planned, pool, plan_id),
            "ownerReferences": [_owner(pool)],
        },
        "spec": spec,
    }


def _labels(planned: PlannedClaim, pool: NodePool) -> dict[str, str]:
    template = pool.spec.template
    reference = template.spec.node_class_ref
    return {
        **template.metadata.labels,
        **planned.labels,
        labels.NODEPOOL: pool.name,
        reference.label_key: reference.name,
    }


def _annotations(planned: PlannedClaim, pool: NodePool, plan_id: str) -> dict[str, str]:
    return {
        **pool.spec.template.metadata.annotations,
        labels.MIN_VALUES_RELAXED: "false",
        **planned.annotations,
        labels.NODEPOOL_HASH: nodepool_hash(pool),
        labels.NODEPOOL_HASH_VERSION: labels.NODEPOOL_HASH_VERSION_VALUE,
        labels.PROMISED_CAPACITY: json.dumps(format_quantities(planned.max_capacity)),
        labels.PLAN_ID: plan_id,
    }


def _owner(pool: NodePool) -> Json:
    return {
        "apiVersion": kinds.NODE_POOL.api_version,
        "kind": kinds.NODE_POOL.kind,
        "name": pool.name,
        "uid": pool.uid,
        "blockOwnerDeletion": True,
    }


def _with_types(planned: PlannedClaim) -> list[NodeSelectorRequirement]:
    """The requirements with the list of types, cheapest first; a static claim has none and launches by the class."""
    if not planned.instance_types:
        return list(planned.requirements)
    others = [item for item in planned.requirements if item.key != labels.INSTANCE_TYPE]
    bounds = [item.min_values for item in planned.requirements if item.key == labels.INSTANCE_TYPE and item.min_values]
    types = NodeSelectorRequirement(
        key=labels.INSTANCE_TYPE,
        operator="In",
        values=list(planned.instance_types),
        min_values=max(bounds, default=None),
    )
    return sorted([*others, types], key=lambda item: (item.key, item.operator))


def _wire(items: list[Any]) -> list[Any]:
    result: list[Any] = msgspec.to_builtins(items)
    return result
