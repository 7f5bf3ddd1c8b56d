"""The reference's answer in the shape of a LaunchPlan, so that the validator can be asked about it too."""

from __future__ import annotations

from pykarpenter.api import labels
from pykarpenter.core import resources
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.plans import ExistingPlacement, LaunchPlan, OfferingChoice, PlannedClaim
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.core.requirements import to_expressions
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.reference.packer import ReferencePlan


def _overlay_annotations(types: list[InstanceType]) -> dict[str, str]:
    found = {}
    if any(offering.price_overlaid for item in types for offering in item.offerings):
        found[labels.PRICE_OVERLAY_APPLIED] = "true"
    if any(item.capacity_overlaid for item in types):
        found[labels.CAPACITY_OVERLAY_APPLIED] = "true"
    return found


def as_launch_plan(snapshot: ClusterSnapshot, plan: ReferencePlan) -> LaunchPlan:
    claims = []
    for claim in plan.claims:
        types = {t.name: t for t in snapshot.instance_types[claim.node_pool]}
        template = next(p for p in snapshot.node_pools if p.name == claim.node_pool).spec.template
        custom = {
            key: min(item.values)
            for key, item in claim.requirements.items()
            if key not in labels.WELL_KNOWN and not item.complement and item.values
        }
        most = resources.maximum(*(types[t].capacity for t in claim.instance_types))
        claims.append(
            PlannedClaim(
                node_pool=claim.node_pool,
                requirements=tuple(to_expressions(claim.requirements)),
                instance_types=tuple(claim.instance_types),
                requests=claim.requests,
                pods=tuple(claim.pods),
                choice=OfferingChoice(claim.instance_types[0], "", "", claim.price),
                max_capacity=resources.add(most, {"nodes": 1}),
                labels={**custom, **template.metadata.labels},
                annotations=_overlay_annotations([types[t] for t in claim.instance_types]),
            )
        )
    return LaunchPlan(
        claims=tuple(claims),
        existing=tuple(ExistingPlacement(node, tuple(pods)) for node, pods in plan.existing.items()),
        unschedulable={key: Refusal(Why.RESOURCES, text) for key, text in plan.failed.items()},
        deferred={key: Refusal(Why.RESERVATION_DEFERRED, "") for key in plan.deferred},
        ignored={key: Refusal(Why.INVALID_POD, text) for key, text in plan.ignored.items()},
    )
