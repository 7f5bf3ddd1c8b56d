"""How `pykarpenter plan` shows its answer: a table for people, JSON or YAML for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.plans import LaunchPlan, PlannedClaim, claim_name
from pykarpenter.core.reasons import Refusal
from pykarpenter.core.snapshot import ClusterSnapshot

PLAN_ID = "plan"
_SHOWN_PODS = 3


def document(plan: LaunchPlan, seconds: float) -> dict[str, Any]:
    """The answer for programs."""
    left_out = {**plan.ignored, **plan.unschedulable, **plan.deferred}
    return {
        "nodes": [_node(claim, index) for index, claim in enumerate(plan.claims)],
        "existing": [{"node": item.node, "pods": list(item.pods)} for item in plan.existing],
        "unschedulable": [
            {"pod": key, "reason": refusal.text(), "details": details(refusal)}
            for key, refusal in sorted(left_out.items())
        ],
        "pricePerHour": plan.price_per_hour,
        "lowerBound": plan.lower_bound,
        "seconds": round(seconds, 6),
    }


def _node(claim: PlannedClaim, index: int) -> dict[str, Any]:
    return {
        "name": claim_name(claim.node_pool, PLAN_ID, index),
        "nodePool": claim.node_pool,
        "instanceType": claim.choice.instance_type,
        "instanceTypes": list(claim.instance_types),
        "zone": claim.choice.zone,
        "capacityType": claim.choice.capacity_type,
        "price": claim.choice.price,
        "pods": list(claim.pods),
    }


def details(refusal: Refusal) -> dict[str, Any]:
    """A refusal as plain data."""
    found: dict[str, Any] = {"why": refusal.why.value}
    if refusal.pools:
        found["nodePools"] = [
            {
                "name": pool.pool,
                "why": pool.why.value,
                "message": pool.message,
                "removed": dict(pool.removed),
                **({"nearest": pool.nearest} if pool.nearest else {}),
            }
            for pool in refusal.pools
        ]
    return {**found, **refusal.details}


def as_json(plan: LaunchPlan, seconds: float) -> str:
    return json.dumps(document(plan, seconds), indent=2)


def as_yaml(plan: LaunchPlan, seconds: float) -> str:
    return yaml.safe_dump(document(plan, seconds), sort_keys=False, width=120)


def as_table(plan: LaunchPlan, snapshot: ClusterSnapshot, seconds: float) -> str:
    """The answer for people."""
    lines: list[str] = []
    if plan.claims:
        lines += _columns(
            ("NODE", "POOL", "TYPE", "ZONE", "CAPACITY", "$/H", "FILL", "PODS"),
            [_row(claim, index, snapshot) for index, claim in enumerate(plan.claims)],
        )
    if plan.existing:
        rows: list[tuple[str, ...]] = [(item.node, str(len(item.pods)), _some(item.pods)) for item in plan.existing]
        lines += ["", "On existing nodes:", *_columns(("NODE", "PODS", ""), rows)]
    lines += _left_out(plan)
    placed = sum(len(c.pods) for c in plan.claims) + sum(len(e.pods) for e in plan.existing)
    price = "unknown" if plan.price_per_hour is None else f"{plan.price_per_hour:.4f}"
    lines += ["", f"{placed} pods placed, {len(plan.claims)} new nodes, {price} $/h, {seconds:.3f} s"]
    if plan.lower_bound is not None and plan.price_per_hour:
        gap = (plan.price_per_hour / plan.lower_bound - 1) * 100 if plan.lower_bound else 0.0
        lines.append(f"lower bound {plan.lower_bound:.4f} $/h, gap {gap:.1f} %")
    return "\n".join(lines).lstrip("\n")


def _row(claim: PlannedClaim, index: int, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    choice = claim.choice
    price = "?" if choice.price is None else f"{choice.price:.4f}"
    types = {item.name: item for item in snapshot.instance_types.get(claim.node_pool, ())}
    return (
        claim_name(claim.node_pool, PLAN_ID, index),
        claim.node_pool,
        choice.instance_type,
        choice.zone,
        choice.capacity_type,
        price,
        _fill(claim, types.get(choice.instance_type)),
        f"{len(claim.pods)}: {_some(claim.pods)}",
    )


def _fill(claim: PlannedClaim, chosen: InstanceType | None) -> str:
    if chosen is None:
        return ""
    allocatable = chosen.allocatable()
    shares = [
        f"{name} {100 * amount // allocatable[name]}%"
        for name, amount in sorted(claim.requests.items())
        if name != "pods" and allocatable.get(name)
    ]
    return ", ".join(shares)


def _left_out(plan: LaunchPlan) -> list[str]:
    by_text: dict[str, list[str]] = {}
    left: Mapping[str, Refusal] = {**plan.ignored, **plan.unschedulable, **plan.deferred}
    for key, refusal in sorted(left.items()):
        by_text.setdefault(refusal.text(), []).append(key)
    lines = ["", f"{len(left)} pods without a place:"] if left else []
    for text, keys in by_text.items():
        lines.append(f"  {_some(tuple(keys))}: {text}")
    return lines


def _some(keys: tuple[str, ...]) -> str:
    shown = ", ".join(keys[:_SHOWN_PODS])
    return shown if len(keys) <= _SHOWN_PODS else f"{shown} and {len(keys) - _SHOWN_PODS} more"


def _columns(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]
    ]
