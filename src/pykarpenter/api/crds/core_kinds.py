"""The CRDs of NodePool and NodeClaim, `karpenter.sh/v1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykarpenter.api import kinds, labels, patterns
from pykarpenter.api.crds import parts
from pykarpenter.api.crds.manifest import AGE, READY, Column, definition
from pykarpenter.api.crds.schema import Schema, array, integer, quantities, rule, struct, text

DISRUPTION_REASONS = ("Underutilized", "Empty", "Drifted", "Unhealthy")
CONSOLIDATION_POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")

_STATIC_POOL_RULES = (
    rule(
        "has(self.replicas) == has(oldSelf.replicas)",
        "replicas cannot be added or removed later; make another NodePool to switch between static and dynamic",
    ),
    rule(
        "!has(self.replicas) || !has(self.limits) || size(self.limits) == 0 "
        "|| (size(self.limits) == 1 && 'nodes' in self.limits)",
        "with replicas only limits.nodes may be set",
    ),
    rule(
        "!(has(self.replicas) && has(self.weight))",
        "weight has no meaning for a static pool; remove weight or replicas",
    ),
)


def node_pool(extra_key_rules: Sequence[Schema] = ()) -> dict[str, Any]:
    keys = parts.key_rules(pool_label=False, extra=extra_key_rules)
    template = struct(
        "What the nodes of the pool look like.",
        {
            "metadata": parts.template_metadata(),
            "spec": struct(
                "How the nodes of the pool are made.",
                parts.claim_fields(keys=keys, fixed_kind=True),
                required=("nodeClassRef", "requirements"),
            ),
        },
        required=("spec",),
    )
    spec = struct(
        "What the pool may launch and how it may be disrupted.",
        {
            "template": template,
            "disruption": _disruption(),
            "limits": quantities(
                "The most the pool may provide in total, per resource; `nodes` limits the number of nodes. "
                "Nothing is launched beyond it."
            ),
            "weight": integer(
                "Pools with a higher weight are tried first. Unset counts as 0.", fmt="int32", minimum=1, maximum=100
            ),
            "replicas": integer(
                "Keeps exactly this many nodes, whatever the pods need: a static pool. Alpha.", minimum=0
            ),
        },
        required=("template",),
        rules=_STATIC_POOL_RULES,
    )
    return definition(
        kinds.NODE_POOL,
        description="A set of nodes with common requirements, limits and rules for disruption.",
        spec=spec,
        status=_pool_status(),
        scale={"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"},
        columns=[
            Column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
            Column("Nodes", ".status.nodes"),
            READY,
            AGE,
            Column("Weight", ".spec.weight", "integer", 1),
            Column("CPU", ".status.resources.cpu", priority=1),
            Column("Memory", ".status.resources.memory", priority=1),
        ],
    )


def _pool_status() -> Schema:
    return struct(
        "What has been observed about the pool.",
        {
            "resources": quantities("What the pool's nodes provide together."),
            "nodes": integer("How many nodes the pool has.", default=0),
            "nodeClassObservedGeneration": integer("The generation of the class that registration health refers to."),
            "conditions": parts.conditions(),
        },
    )


def _disruption() -> Schema:
    budget = struct(
        "How many nodes may be disrupted at the same time, and when.",
        {
            "nodes": text(
                "A number of nodes, or a percentage of the pool, rounded up.",
                pattern=patterns.BUDGET_NODES,
                default="10%",
            ),
            "reasons": array(
                "The reasons that the budget is for. Unset: all of them.",
                text("A reason for disruption.", one_of=DISRUPTION_REASONS),
                max_items=50,
                list_type="set",
            ),
            "schedule": text(
                "When the budget begins to apply: a cron line of five fields or a word such as @daily, in UTC. "
                "Needs duration. Unset: it always applies.",
                pattern=patterns.BUDGET_SCHEDULE,
            ),
            "duration": text("How long the budget applies from each begin.", pattern=patterns.BUDGET_DURATION),
        },
        required=("nodes",),
        rules=[
            rule(
                "has(self.schedule) == has(self.duration)",
                "schedule and duration go together; set both or neither",
            )
        ],
    )
    return struct(
        "When and how many nodes of the pool may be disrupted voluntarily.",
        {
            "consolidateAfter": text(
                "How long a node must be without pod changes before consolidation looks at it, or Never.",
                pattern=patterns.DURATION_OR_NEVER,
                default="0s",
            ),
            "consolidationPolicy": text(
                "Which nodes consolidation may remove or replace.",
                one_of=CONSOLIDATION_POLICIES,
                default="WhenEmptyOrUnderutilized",
            ),
            "budgets": array(
                "Limits on simultaneous disruption; the strictest that applies counts. An empty list sets none.",
                budget,
                max_items=50,
                default=[{"nodes": "10%"}],
            ),
        },
        default={"consolidateAfter": "0s"},
    )


def node_claim(extra_key_rules: Sequence[Schema] = ()) -> dict[str, Any]:
    keys = parts.key_rules(pool_label=True, extra=extra_key_rules)
    spec = struct(
        "The machine that is wanted. It cannot be changed.",
        {
            **parts.claim_fields(keys=keys, fixed_kind=False),
            "resources": struct(
                "What the machine must at least offer to pods.",
                {"requests": quantities("The resources that the planned pods request.")},
            ),
        },
        required=("nodeClassRef", "requirements"),
        rules=[rule("self == oldSelf", "the spec of a NodeClaim cannot be changed; delete it to get another node")],
    )
    status = struct(
        "The machine that was launched and how far it has come.",
        {
            "nodeName": text("The Node that the machine registered as."),
            "providerID": text("The machine's identity at the provider."),
            "imageID": text("The image that the machine runs."),
            "capacity": quantities("All that the machine has."),
            "allocatable": quantities("What the machine has for pods."),
            "conditions": parts.conditions(empty_reason=True),
            "lastPodEventTime": text("When a pod last came to or left the node.", fmt="date-time"),
        },
    )
    return definition(
        kinds.NODE_CLAIM,
        description="One machine: wanted, launched, registered, and later removed.",
        spec=spec,
        status=status,
        columns=[
            _label_column("Type", labels.INSTANCE_TYPE),
            _label_column("Capacity", labels.CAPACITY_TYPE),
            _label_column("Zone", labels.ZONE),
            Column("Node", ".status.nodeName"),
            READY,
            AGE,
            Column("ImageID", ".status.imageID", priority=1),
            Column("ID", ".status.providerID", priority=1),
            _label_column("NodePool", labels.NODEPOOL, 1),
            Column("NodeClass", ".spec.nodeClassRef.name", priority=1),
            Column("Drifted", '.status.conditions[?(@.type=="Drifted")].status', priority=1),
        ],
    )


def _label_column(name: str, label: str, priority: int = 0) -> Column:
    escaped = label.replace(".", r"\.")
    return Column(name, f".metadata.labels.{escaped}", priority=priority)
