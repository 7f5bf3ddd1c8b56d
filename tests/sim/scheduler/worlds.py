"""Short ways to write nodes and pods for scheduler tests."""

from __future__ import annotations

from typing import Any

import msgspec

from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.sim.scheduler.engine import Engine, Refused


def node(name: str, cpu: str = "4", memory: str = "16Gi", zone: str = "a", **spec: Any) -> Node:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, **spec.pop("labels", {})}
    extra = spec.pop("allocatable", {})
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110", **extra}},
        },
        Node,
    )


def pod(name: str, cpu: str = "1", memory: str = "1Gi", **fields: Any) -> Pod:
    requests = {"cpu": cpu, "memory": memory, **fields.pop("requests", {})}
    metadata = {
        "name": name,
        "namespace": fields.pop("namespace", "default"),
        "uid": f"uid-{name}",
        "labels": fields.pop("labels", {}),
        "ownerReferences": fields.pop("owners", []),
    }
    deleting = fields.pop("deleting", False)
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    container = {"name": "c", "resources": {"requests": requests}, "ports": fields.pop("ports", [])}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [container], **fields}}, Pod)


def spread(key: str, max_skew: int = 1, app: str = "web", when: str = "DoNotSchedule", **more: Any) -> dict[str, Any]:
    return {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


def engine_with(*nodes: Node, seed: int = 1) -> Engine:
    engine = Engine(seed)
    for item in nodes:
        engine.set_node(item)
    return engine


def place(engine: Engine, item: Pod) -> str | Refused:
    """Decide and, when there is a node, put the pod there."""
    outcome = engine.place(item, engine.shape_of(item, lambda _: None))
    if isinstance(outcome, str):
        engine.assume(item, outcome)
    return outcome


def message(outcome: str | Refused) -> str:
    assert isinstance(outcome, Refused), f"expected a refusal, got node {outcome}"
    return outcome.message
