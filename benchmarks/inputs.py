"""Benchmark inputs: recorded pods and catalogues, and generators with fixed seeds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from pykarpenter.api import labels
from pykarpenter.api.meta import Condition, LabelSelector, ObjectMeta
from pykarpenter.api.nodepool import NodeClaimTemplate, NodeClaimTemplateSpec, NodePool, NodePoolSpec, NodePoolStatus
from pykarpenter.api.pods import (
    Affinity,
    Container,
    NodeSelectorRequirement,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from pykarpenter.cloud.catalog import OVERHEAD, kwok_catalog, load_catalog
from pykarpenter.core.instance_types import InstanceType, Offering
from pykarpenter.core.requirements import Requirement, Requirements

DATA = Path(__file__).parent / "data"
PENDING = PodStatus(
    phase="Pending", conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")]
)


def linear400() -> tuple[InstanceType, ...]:
    """Upstream's benchmark catalogue: type i has i vCPU, 2·i GiB and 10·i pods, priced by size."""
    return tuple(_linear(size) for size in range(1, 401))


def _linear(size: int) -> InstanceType:
    capacity = {"cpu": size * 1000, "memory": size * 2 * 2**30, "pods": size * 10}
    price = 0.1 * size + 0.1 * capacity["memory"] / 1e9
    where = [("test-zone-1", labels.SPOT), ("test-zone-2", labels.SPOT)]
    where += [(f"test-zone-{zone}", labels.ON_DEMAND) for zone in (1, 2, 3)]
    name = f"fake-it-{size - 1}"
    single = {
        labels.INSTANCE_TYPE: {name},
        labels.ARCH: {"amd64"},
        labels.OS: {"linux"},
        labels.ZONE: {zone for zone, _ in where},
        labels.CAPACITY_TYPE: {kind for _, kind in where},
    }
    offerings = tuple(
        Offering(
            Requirements(
                [Requirement(labels.ZONE, frozenset({zone})), Requirement(labels.CAPACITY_TYPE, frozenset({kind}))]
            ),
            price,
        )
        for zone, kind in where
    )
    requirements = Requirements(Requirement(key, frozenset(values)) for key, values in single.items())
    return InstanceType(name, requirements, offerings, capacity, dict(OVERHEAD))


def kwok16() -> tuple[InstanceType, ...]:
    """KWOK's Linux types of at most 16 vCPU."""
    return tuple(t for t in kwok_catalog() if t.name.endswith("-linux") and t.capacity["cpu"] <= 16000)


def catalog800() -> tuple[InstanceType, ...]:
    return load_catalog(str(DATA / "catalog-800.json.gz"))


def pool(name: str = "default", **spec: Any) -> NodePool:
    return NodePool(
        metadata=ObjectMeta(name=name, uid=name),
        spec=NodePoolSpec(template=NodeClaimTemplate(spec=NodeClaimTemplateSpec(**spec.pop("template", {}))), **spec),
        status=NodePoolStatus(conditions=[Condition(type="Ready", status="True")]),
    )


def recorded(name: str) -> tuple[Pod, ...]:
    """The pods of one recorded input."""
    entries = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return tuple(pod(f"pod-{index:06d}", **entry) for index, entry in enumerate(entries))


def pod(name: str, cpu_m: int, memory: int, labels: dict[str, str], namespace: str = "default", **rules: Any) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=name, labels=labels),
        spec=PodSpec(
            containers=[
                Container(name="c", resources=ResourceRequirements(requests={"cpu": f"{cpu_m}m", "memory": memory}))
            ],
            topology_spread_constraints=[_spread(entry) for entry in rules.get("spread", [])],
            affinity=_affinity(rules.get("affinity"), rules.get("antiAffinity")),
        ),
        status=PENDING,
    )


def _spread(entry: dict[str, Any]) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        topology_key=entry["topologyKey"], label_selector=LabelSelector(match_labels=entry["matchLabels"])
    )


def _affinity(near: dict[str, Any] | None, apart: dict[str, Any] | None) -> Affinity | None:
    if near is None and apart is None:
        return None
    return Affinity(pod_affinity=_term(near), pod_anti_affinity=_term(apart))


def _term(entry: dict[str, Any] | None) -> PodAffinity | None:
    if entry is None:
        return None
    selector = LabelSelector(match_labels=entry["matchLabels"])
    return PodAffinity(required=[PodAffinityTerm(topology_key=entry["topologyKey"], label_selector=selector)])


def requirement(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values))
