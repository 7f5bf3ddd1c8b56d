"""Weight decides between pools unless the user says that cost does."""

from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.support.builders import make_offering, make_pods, make_pool, make_type


def snapshot() -> ClusterSnapshot:
    return ClusterSnapshot(
        now=0.0,
        pods=tuple(make_pods(3)),
        node_pools=(make_pool("dear", weight=50), make_pool("cheap")),
        instance_types={"dear": (make_type("gold", price=3.0),), "cheap": (make_type("plain", price=0.5),)},
    )


def test_the_heavier_pool_serves_pods_by_default():
    """As Karpenter: weight before price."""
    plan = pack(snapshot(), PackingSettings())
    assert {claim.node_pool for claim in plan.claims} == {"dear"}


def test_the_cheaper_pool_serves_pods_when_cost_comes_first():
    """`--cross-pool-cost` lets the bill decide."""
    plan = pack(snapshot(), PackingSettings(cross_pool_cost=True))
    assert {claim.node_pool for claim in plan.claims} == {"cheap"}


def test_a_pool_without_a_known_price_comes_last_when_cost_comes_first():
    """Unknown is never free."""
    base = snapshot()
    unknown = make_type("mystery", offerings=[make_offering("zone-1", "on-demand", None)])
    changed = ClusterSnapshot(
        now=0.0,
        pods=base.pods,
        node_pools=base.node_pools,
        instance_types={"dear": base.instance_types["dear"], "cheap": (unknown,)},
    )
    plan = pack(changed, PackingSettings(cross_pool_cost=True))
    assert {claim.node_pool for claim in plan.claims} == {"dear"}
