"""Which objects are ours, how they belong together, and how events refer to them.

A Node and a NodeClaim belong together by providerID, and only when neither side has a second partner: a duplicate
is a conflict that somebody must resolve, never a reason to act on both.
"""

from __future__ import annotations

from pykarpenter.api import kinds, labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node, ObjectReference
from pykarpenter.api.pods import Pod
from pykarpenter.cloud.provider import ProviderTraits
from pykarpenter.controllers.context import Context
from pykarpenter.kube.events import reference_to

# Index names of the caches.
BY_NODE_NAME = "spec.nodeName"
NODES_BY_PROVIDER_ID = "spec.providerID"
CLAIMS_BY_PROVIDER_ID = "status.providerID"


def is_managed_claim(claim: NodeClaim, traits: ProviderTraits) -> bool:
    reference = claim.spec.node_class_ref
    return any(c.group == reference.group and c.kind == reference.kind for c in traits.node_classes)


def is_managed_node(node: Node, traits: ProviderTraits) -> bool:
    """Carries the label of a class that the provider serves."""
    return any(f"{c.group}/{c.kind.lower()}" in node.metadata.labels for c in traits.node_classes)


def nodes_of(ctx: Context, claim: NodeClaim) -> list[Node]:
    """The Nodes with the claim's providerID, as last seen."""
    if not claim.status.provider_id:
        return []
    return ctx.caches.of(kinds.NODE).index(NODES_BY_PROVIDER_ID, claim.status.provider_id)


def claims_of(ctx: Context, provider_id: str) -> list[NodeClaim]:
    """The managed claims with that providerID, as last seen."""
    if not provider_id:
        return []
    found = ctx.caches.of(kinds.NODE_CLAIM).index(CLAIMS_BY_PROVIDER_ID, provider_id)
    return [claim for claim in found if is_managed_claim(claim, ctx.provider.traits)]


def claim_of(ctx: Context, node: Node) -> NodeClaim | None:
    """The one claim of a Node; None when there is none or more than one."""
    found = claims_of(ctx, node.spec.provider_id)
    return found[0] if len(found) == 1 else None


def conflicting_owner(claim: NodeClaim, node: Node) -> str:
    """The name of another NodeClaim that the Node says it belongs to; empty when there is none."""
    for owner in node.metadata.owner_references:
        if owner.kind == "NodeClaim" and owner.api_version.startswith(f"{labels.GROUP}/") and owner.uid != claim.uid:
            return owner.name
    return ""


def pod_reference(pod: Pod) -> ObjectReference:
    return reference_to(kinds.POD, pod)


def node_reference(node: Node) -> ObjectReference:
    # Kubernetes files the events of a Node under its name.
    return ObjectReference(api_version="v1", kind="Node", name=node.name, uid=node.name)


def claim_reference(claim: NodeClaim) -> ObjectReference:
    return reference_to(kinds.NODE_CLAIM, claim)
