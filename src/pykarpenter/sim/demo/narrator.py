"""Turns what is written in the cluster into sentences: which machine was asked for, bought, ready, given back."""

from __future__ import annotations

from collections.abc import Callable

from pykarpenter.api import labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.quantity import format_units, requested
from pykarpenter.runtime.clock import Clock
from pykarpenter.sim.cloud.cloud import SimCloud
from pykarpenter.sim.cloud.instances import Instance, instance_id
from pykarpenter.sim.journal import Journal, Written

Say = Callable[[str], None]


class Narrator:
    def __init__(self, journal: Journal, cloud: SimCloud, clock: Clock, say: Say) -> None:
        self._cloud = cloud
        self._clock = clock
        self._say = say
        self._told: dict[tuple[str, str], None] = {}
        journal.listen(self._written)

    def _written(self, written: Written) -> None:
        kind = written.resource.kind
        if kind == "NodeClaim":
            self._claim(written.type, written.entry.decode(NodeClaim))
        elif kind == "Node" and written.type != "DELETED":
            self._node(written.entry.decode(Node))

    def _claim(self, change: str, claim: NodeClaim) -> None:
        instance = self._instance(claim)
        if change == "DELETED":
            price = f", ${instance.price:.3f}/h saved" if instance is not None else ""
            self._once(claim, "gone", f"{claim.name} is gone{price}")
            return
        self._once(claim, "asked", f"{claim.pool_name}: a machine is needed for {_wants(claim)}")
        if instance is not None:
            self._once(
                claim,
                "launched",
                f"{claim.name}: bought {instance.item.name} ({instance.offering.capacity_type}, "
                f"{instance.offering.zone}) for ${instance.price:.3f}/h, the cheapest of {_choices(claim)} types",
            )
        if claim.is_deleting:
            self._once(claim, "draining", f"{claim.name} is drained and given back")

    def _node(self, node: Node) -> None:
        if node.metadata.labels.get(labels.INITIALIZED) != "true":
            return
        instance = self._cloud.instances.get(instance_id(node.spec.provider_id))
        if instance is None or ("ready", node.uid) in self._told:
            return
        self._told[("ready", node.uid)] = None
        waited = self._clock.now() - instance.launched_at
        self._say(f"{node.name} is ready, {waited:.0f} s after it was bought")

    def _once(self, claim: NodeClaim, what: str, sentence: str) -> None:
        if (what, claim.uid) not in self._told:
            self._told[(what, claim.uid)] = None
            self._say(sentence)

    def _instance(self, claim: NodeClaim) -> Instance | None:
        return self._cloud.instances.get(instance_id(claim.status.provider_id))


def _wants(claim: NodeClaim) -> str:
    wants = requested(claim.spec.resources.requests)
    shown = [(name, wants[name]) for name in ("cpu", "memory", "nvidia.com/gpu") if wants.get(name)]
    count = wants.get("pods", 0)
    pods = f"{count} pod{'s' if count != 1 else ''}" if count else "pods"
    return f"{pods} ({', '.join(f'{name} {_short(name, amount)}' for name, amount in shown)})"


def _short(name: str, amount: int) -> str:
    return f"{amount / 2**30:.1f}Gi" if name == "memory" else format_units(name, amount)


def _choices(claim: NodeClaim) -> int:
    for requirement in claim.spec.requirements:
        if requirement.key == labels.INSTANCE_TYPE and requirement.operator == "In":
            return len(requirement.values)
    return 0
