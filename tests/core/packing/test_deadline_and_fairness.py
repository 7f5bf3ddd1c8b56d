"""A huge batch under a deadline: what is decided is valid, what is left is named, and nobody starves silently."""

from itertools import count

import pytest

from pykarpenter.cloud.catalog import kwok_catalog
from pykarpenter.core import resources
from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.reasons import Why
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.support.builders import make_pods, make_pool

CLASSES, EACH = 500, 80


@pytest.fixture(scope="module")
def batch() -> ClusterSnapshot:
    pods = tuple(
        pod
        for index in range(CLASSES)
        for pod in make_pods(EACH, f"d{index:03d}", cpu=f"{100 + index}m", memory=f"{64 + index % 50}Mi")
    )
    pool = make_pool()
    return ClusterSnapshot(now=0.0, pods=pods, node_pools=(pool,), instance_types={pool.name: kwok_catalog()})


def test_f37_a_deadline_gives_a_valid_partial_plan_that_names_what_is_left(batch: ClusterSnapshot) -> None:
    """Pods that were not reached must hear so, not wait in silence."""
    asked = count()
    plan = pack(batch, PackingSettings(), should_stop=lambda: next(asked) > CLASSES // 2)
    placed = [key for claim in plan.claims for key in claim.pods]
    assert 0 < len(placed) < len(batch.pods)
    assert len(placed) == len(set(placed))
    assert {*placed, *plan.unschedulable} == {pod.key for pod in batch.pods}
    assert {refusal.why for refusal in plan.unschedulable.values()} == {Why.DEADLINE}
    types = {item.name: item for item in batch.instance_types["default"]}
    wanted = {pod.key: resources.pod_requests(pod) for pod in batch.pods}
    for claim in plan.claims:
        total = resources.total(wanted[key] for key in claim.pods)
        assert resources.fits(total, types[claim.choice.instance_type].allocatable())


def test_f37_every_class_is_tried_when_there_is_time(batch: ClusterSnapshot) -> None:
    """Small pods at the end of the queue get their place in the same pass."""
    plan = pack(batch, PackingSettings(effort="off"))
    assert not plan.unschedulable
    assert sum(len(claim.pods) for claim in plan.claims) == CLASSES * EACH
