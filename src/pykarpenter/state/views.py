"""How scheduling sees a machine at each stage of its life.

| Stage | Labels, annotations, taints from | Taints hidden | Allocatable from |
|---|---|---|---|
| claim not launched | claim, and requirements that allow one value | startup, ephemeral | the claim's requests |
| launched, not registered | claim | startup, ephemeral | Node, gaps filled from the claim |
| registered, not initialized | Node | startup, ephemeral | Node, gaps filled from the claim |
| rebooting | Node | startup, ephemeral, rebooting | Node, gaps filled while not initialized |
| initialized, or not managed | Node | none | Node |

A claim that is not launched offers exactly what it was asked to hold: more is not known of it. Its capacity is the
most it can turn out to have, because that is what counts against the pool's limits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from pykarpenter.api import labels
from pykarpenter.api.meta import condition_status
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node, Taint
from pykarpenter.api.pods import Pod, Quantities
from pykarpenter.api.quantity import InvalidQuantity, available, requested
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.resources import Resources, maximum
from pykarpenter.core.snapshot import NodeView
from pykarpenter.state.machines import Machine


def is_launched(claim: NodeClaim) -> bool:
    return bool(claim.status.provider_id)


def is_rebooting(claim: NodeClaim | None) -> bool:
    return claim is not None and condition_status(claim.status.conditions, "Rebooting") == "True"


def is_leaving(machine: Machine) -> bool:
    """Deletion that the cluster itself shows; a Node under deletion is drained, whatever its claim says yet."""
    claim, node = machine.claim, machine.node
    if claim is not None and (
        claim.is_deleting or condition_status(claim.status.conditions, "InstanceTerminating") == "True"
    ):
        return True
    return node is not None and node.is_deleting


def build_view(
    machine: Machine,
    pods: Iterable[Pod],
    *,
    managed: bool,
    is_marked: bool,
    nominated_until: float,
    types: tuple[InstanceType, ...],
    buffer_pods: int = 0,
    returning: Iterable[Pod] = (),
) -> NodeView:
    """The machine as decisions read it; `types` are its pool's, to bound a claim that says nothing of itself."""
    node, claim = machine.node, machine.claim
    registered = not managed or (node is not None and node.metadata.labels.get(labels.REGISTERED) == "true")
    initialized = not managed or (node is not None and node.metadata.labels.get(labels.INITIALIZED) == "true")
    rebooting = is_rebooting(claim)
    described_by_claim = claim is not None and (node is None or not registered)
    return NodeView(
        name=machine.name,
        provider_id=machine.provider_id,
        node=node,
        claim=claim,
        labels=_labels(node, claim, described_by_claim),
        annotations=_annotations(node, claim, described_by_claim),
        taints=_taints(node, claim, described_by_claim, hides=managed and (not initialized or rebooting)),
        capacity=_capacity(node, claim, types),
        allocatable={} if machine.is_ambiguous else _allocatable(node, claim, initialized),
        pods=tuple(sorted(pods, key=lambda pod: pod.key)),
        returning=tuple(sorted(returning, key=lambda pod: pod.key)),
        managed=managed,
        registered=registered,
        initialized=initialized,
        marked_for_deletion=is_marked or is_leaving(machine),
        rebooting=rebooting,
        nominated_until=nominated_until,
        buffer_pods=buffer_pods,
    )


def _labels(node: Node | None, claim: NodeClaim | None, described_by_claim: bool) -> Mapping[str, str]:
    if claim is None or not described_by_claim:
        return node.metadata.labels if node is not None else {}
    if is_launched(claim):
        return claim.metadata.labels
    # Not launched: a requirement with one value is certain; the others stay undefined rather than guessed.
    certain = {
        item.key: item.values[0]
        for item in claim.spec.requirements
        if item.operator == "In" and len(item.values) == 1 and item.key != labels.HOSTNAME
    }
    return {**certain, **claim.metadata.labels}


def _annotations(node: Node | None, claim: NodeClaim | None, described_by_claim: bool) -> Mapping[str, str]:
    if claim is not None and described_by_claim:
        return claim.metadata.annotations
    return node.metadata.annotations if node is not None else {}


def _taints(node: Node | None, claim: NodeClaim | None, described_by_claim: bool, *, hides: bool) -> tuple[Taint, ...]:
    if claim is not None and described_by_claim:
        found = claim.spec.taints
    else:
        found = node.spec.taints if node is not None else []
    return taints_in_force(found, claim, hides=hides)


def taints_in_force(found: Sequence[Taint], claim: NodeClaim | None, *, hides: bool) -> tuple[Taint, ...]:
    """The taints that keep pods away; `hides` leaves out those that go by themselves once the machine is up."""
    if not hides:
        return tuple(found)
    startup = {(taint.key, taint.effect) for taint in (claim.spec.startup_taints if claim is not None else ())}
    return tuple(
        taint
        for taint in found
        if (taint.key, taint.effect) not in startup
        and not labels.is_ephemeral_taint(taint.key, taint.effect)
        and taint.key != labels.REBOOTING_TAINT
    )


def _capacity(node: Node | None, claim: NodeClaim | None, types: tuple[InstanceType, ...]) -> Resources:
    if claim is None:
        return _known(node.status.capacity) if node is not None else {}
    if not is_launched(claim) or not claim.status.capacity:
        observed = _known(node.status.capacity) if node is not None else {}
        return maximum(observed, promised_capacity(claim, types))
    # The larger of the two words: limits must hold whichever of them is true.
    return maximum(_known(node.status.capacity) if node is not None else {}, _known(claim.status.capacity))


def _allocatable(node: Node | None, claim: NodeClaim | None, initialized: bool) -> Resources:
    if claim is None:
        return _known(node.status.allocatable) if node is not None else {}
    if not is_launched(claim):
        return _known(claim.spec.resources.requests, requested)
    return _filled(node.status.allocatable if node is not None else {}, claim.status.allocatable, initialized)


def _filled(observed: Quantities, expected: Quantities, initialized: bool) -> Resources:
    """What the Node says, and until it is initialized the claim's word where the Node says nothing or zero."""
    result = _known(observed)
    if not initialized:
        for name, amount in _known(expected).items():
            if not result.get(name):
                result[name] = amount
    return result


def _known(quantities: Quantities, read: Callable[[Quantities], Resources] = available) -> Resources:
    """Amounts that can be read; one that cannot is unknown, and unknown room is no room."""
    try:
        return read(quantities)
    except InvalidQuantity:
        return {name: _readable(name, value, read) for name, value in quantities.items()}


def _readable(name: str, value: str | int | float, read: Callable[[Quantities], Resources]) -> int:
    try:
        return read({name: value})[name]
    except InvalidQuantity:
        return 0


def promised_capacity(claim: NodeClaim, types: tuple[InstanceType, ...] = ()) -> Resources:
    """The most a claim without a machine can add to its pool's usage, `nodes` left out.

    Taken from what was written down when it was created; a claim of other making is bounded by the types it lists,
    and by its requests when those types are not known.
    """
    written = claim.metadata.annotations.get(labels.PROMISED_CAPACITY)
    if written:
        try:
            amounts = requested(json.loads(written))
            amounts.pop("nodes", None)
            return amounts
        except (ValueError, TypeError, AttributeError):
            pass
    listed = next(
        (set(r.values) for r in claim.spec.requirements if r.key == labels.INSTANCE_TYPE and r.operator == "In"), None
    )
    fitting = [item.capacity for item in types if listed is None or item.name in listed]
    return maximum(_known(claim.spec.resources.requests, requested), *fitting)
