"""Short questions about a plan."""

from __future__ import annotations

from typing import Any

from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.plans import LaunchPlan
from tests.support.builders import make_snapshot


def plan_of(pods: Any, settings: PackingSettings | None = None, **fields: Any) -> LaunchPlan:
    return pack(make_snapshot(pods, **fields), settings or PackingSettings())


def zones(plan: LaunchPlan) -> dict[str, str]:
    """The zone of each pod on a new machine."""
    return {key: claim.choice.zone for claim in plan.claims for key in claim.pods}


def per_claim(plan: LaunchPlan) -> list[int]:
    return sorted(len(claim.pods) for claim in plan.claims)


def on_nodes(plan: LaunchPlan) -> dict[str, list[str]]:
    return {placement.node: sorted(placement.pods) for placement in plan.existing}


def allowed(plan: LaunchPlan, claim: int, key: str) -> list[str]:
    """The values that a claim's requirement on a key lists."""
    return next((r.values for r in plan.claims[claim].requirements if r.key == key), [])
