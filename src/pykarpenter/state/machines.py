"""Which Node belongs to which NodeClaim, and what machine the two describe together.

A machine is a NodeClaim with the Node of the same providerID once there is one, or a Node without a claim. Identity
comes from the providerID alone. Where it is ambiguous (two Nodes or two claims share one), nothing is guessed: the
claim stands alone and offers no room, and the Nodes stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node

ClassKinds = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine; `id` stays the same while its Node comes and goes."""

    id: str
    node: Node | None = None
    claim: NodeClaim | None = None
    # The providerID does not say which Node or claim this is.
    is_ambiguous: bool = False

    @property
    def name(self) -> str:
        if self.node is not None:
            return self.node.name
        return self.claim.name if self.claim is not None else ""

    @property
    def provider_id(self) -> str:
        if self.node is not None and self.node.spec.provider_id:
            return self.node.spec.provider_id
        return self.claim.status.provider_id if self.claim is not None else ""


class Machines:
    """Nodes and NodeClaims, joined. `dirty` collects the ids of machines whose description changed."""

    def __init__(self, managed_classes: ClassKinds | None = None) -> None:
        self._managed_classes = managed_classes
        self._class_labels = frozenset(f"{group}/{kind.lower()}" for group, kind in managed_classes or ())
        self._nodes: dict[str, Node] = {}
        self._claims: dict[str, NodeClaim] = {}
        self._nodes_by_provider_id: dict[str, dict[str, None]] = {}
        self._claims_by_provider_id: dict[str, dict[str, None]] = {}
        self.dirty: dict[str, None] = {}

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def claim(self, name: str) -> NodeClaim | None:
        return self._claims.get(name)

    def nodes_of(self, provider_id: str) -> list[str]:
        return sorted(self._nodes_by_provider_id.get(provider_id, ()))

    def claims(self) -> list[NodeClaim]:
        return [self._claims[name] for name in sorted(self._claims)]

    def is_managed_claim(self, claim: NodeClaim) -> bool:
        if self._managed_classes is None:
            return True
        reference = claim.spec.node_class_ref
        return (reference.group, reference.kind) in self._managed_classes

    def is_managed_node(self, node: Node) -> bool:
        """Carries the class label of a kind this provider serves."""
        if self._managed_classes is None:
            return labels.NODEPOOL in node.metadata.labels
        return any(key in node.metadata.labels for key in self._class_labels)

    def put_node(self, node: Node) -> None:
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        self._reindex(
            self._nodes_by_provider_id, node.name, before.spec.provider_id if before else "", node.spec.provider_id
        )
        self.touch_node(node.name)

    def drop_node(self, name: str) -> Node | None:
        node = self._nodes.get(name)
        if node is None:
            return None
        self.touch_node(name)
        self._reindex(self._nodes_by_provider_id, name, node.spec.provider_id, "")
        return self._nodes.pop(name)

    def put_claim(self, claim: NodeClaim) -> None:
        before = self._claims.get(claim.name)
        self._claims[claim.name] = claim
        self._reindex(
            self._claims_by_provider_id,
            claim.name,
            before.status.provider_id if before else "",
            claim.status.provider_id,
        )
        self.dirty[claim_id(claim.name)] = None

    def drop_claim(self, name: str) -> NodeClaim | None:
        claim = self._claims.get(name)
        if claim is None:
            return None
        self._reindex(self._claims_by_provider_id, name, claim.status.provider_id, "")
        self.dirty[claim_id(name)] = None
        return self._claims.pop(name)

    def touch_node(self, name: str) -> None:
        """The machine that the Node describes, or will, must be described anew."""
        self.dirty[node_id(name)] = None
        node = self._nodes.get(name)
        if node is not None:
            self._touch_provider_id(node.spec.provider_id)

    def touch_provider_id(self, provider_id: str) -> None:
        self._touch_provider_id(provider_id)

    def resolve(self, machine_id: str) -> Machine | None:
        """The machine of that id as it is now; None when there is none (any more)."""
        side, _, name = machine_id.partition("/")
        if side == "claim":
            claim = self._claims.get(name)
            return self._of_claim(claim) if claim is not None else None
        node = self._nodes.get(name)
        return self._of_node(node) if node is not None else None

    def id_of_node(self, name: str) -> str:
        """The id of the machine that a Node describes."""
        node = self._nodes.get(name)
        owner = self._owner(node) if node is not None else None
        return claim_id(owner.name) if owner is not None else node_id(name)

    def _of_claim(self, claim: NodeClaim) -> Machine:
        provider_id = claim.status.provider_id
        names = sorted(self._nodes_by_provider_id.get(provider_id, ())) if provider_id else []
        rivals = self._claims_by_provider_id.get(provider_id, {}) if provider_id else {}
        node = self._attached(claim)
        ambiguous = node is None and (len(names) > 1 or (len(rivals) > 1 and self._first_claim(rivals) is not claim))
        return Machine(claim_id(claim.name), node, claim, ambiguous)

    def _of_node(self, node: Node) -> Machine | None:
        if self._owner(node) is not None or not self._is_trackable(node):
            return None
        return Machine(node_id(node.name), node)

    def _owner(self, node: Node) -> NodeClaim | None:
        """The claim whose machine this Node is."""
        claims = self._claims_by_provider_id.get(node.spec.provider_id) if node.spec.provider_id else None
        if not claims:
            return None
        for name in sorted(claims):
            claim = self._claims[name]
            if self._attached(claim) is node:
                return claim
        return None

    def _attached(self, claim: NodeClaim) -> Node | None:
        provider_id = claim.status.provider_id
        names = self._nodes_by_provider_id.get(provider_id) if provider_id else None
        if not names or self._first_claim(self._claims_by_provider_id[provider_id]) is not claim:
            return None
        if len(names) == 1:
            node = self._nodes[next(iter(names))]
        elif claim.status.node_name in names:
            node = self._nodes[claim.status.node_name]
        else:
            return None
        return node if self._is_trackable(node) else None

    def _first_claim(self, names: dict[str, None]) -> NodeClaim:
        """Of several claims with one providerID the oldest has it; a hand-edited copy does not steal the Node."""
        return min((self._claims[name] for name in names), key=lambda c: (c.metadata.creation_timestamp or "", c.name))

    def _is_trackable(self, node: Node) -> bool:
        """A pool's Node that does not yet say what it is would be counted wrongly: it waits for its labels."""
        if labels.NODEPOOL not in node.metadata.labels:
            return True
        if not node.spec.provider_id:
            return False
        found = node.metadata.labels
        return labels.INSTANCE_TYPE in found or found.get(labels.INITIALIZED) == "true"

    def _reindex(self, index: dict[str, dict[str, None]], name: str, before: str, after: str) -> None:
        if before and before != after:
            self._touch_provider_id(before)
            members = index.get(before, {})
            members.pop(name, None)
            if not members:
                index.pop(before, None)
        if after:
            index.setdefault(after, {})[name] = None
            self._touch_provider_id(after)

    def _touch_provider_id(self, provider_id: str) -> None:
        if not provider_id:
            return
        for name in self._claims_by_provider_id.get(provider_id, ()):
            self.dirty[claim_id(name)] = None
        for name in self._nodes_by_provider_id.get(provider_id, ()):
            self.dirty[node_id(name)] = None


def claim_id(name: str) -> str:
    return f"claim/{name}"


def node_id(name: str) -> str:
    return f"node/{name}"
