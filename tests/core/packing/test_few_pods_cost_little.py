"""Small batches are what a running cluster brings every minute: room that is paid for anyway is filled first."""

from pykarpenter.api import labels
from pykarpenter.cloud.catalog import kwok_catalog
from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.snapshot import ClusterSnapshot
from tests.reference.validator import validate
from tests.support.builders import affinity_term, apart, expression, make_pods, make_pool, spread


def plan_of(effort: str, limits: dict[str, str] | None = None) -> LaunchPlan:
    """Three databases, five web pods apart from each other and over zones, and seven small pods."""
    pool = make_pool(limits=limits, requirements=[expression(labels.OS, "In", "linux")])
    own = {"app": "web"}
    web = make_pods(
        5,
        "web",
        cpu="500m",
        memory="1Gi",
        labels=own,
        affinity=apart(affinity_term(labels.HOSTNAME, own)),
        topology_spread_constraints=[spread(labels.ZONE, own)],
    )
    pods = [*make_pods(3, "db", cpu="2", memory="8Gi"), *web, *make_pods(7, "job", cpu="100m", memory="1Mi")]
    snapshot = ClusterSnapshot(
        now=0.0, pods=tuple(pods), node_pools=(pool,), instance_types={pool.name: kwok_catalog()}
    )
    settings = PackingSettings(effort=effort)
    plan = pack(snapshot, settings)
    assert not plan.unschedulable
    assert validate(snapshot, settings, plan) == []
    return plan


def types_of(plan: LaunchPlan) -> list[str]:
    return sorted(claim.choice.instance_type.split("-", 1)[1].split("-")[0] for claim in plan.claims)


def test_small_pods_fill_what_others_leave_free_instead_of_a_larger_machine():
    """The compatible plan buys a machine of two cpus for small pods that fit beside the databases and web pods."""
    compatible, cheaper = plan_of("off"), plan_of("normal")
    assert types_of(compatible) == ["1x", "1x", "1x", "2x", "8x"]
    assert types_of(cheaper) == ["1x", "1x", "1x", "1x", "8x"]


def test_limits_do_not_keep_pods_on_the_machines_they_were_first_planned_for():
    """Under a limit the compatible plan shuns large machines; the cheapest plan that keeps the limit is wanted."""
    compatible, cheaper = plan_of("off", {"cpu": "40"}), plan_of("normal", {"cpu": "40"})
    assert types_of(cheaper) == ["1x", "1x", "1x", "1x", "8x"]
    assert cheaper.price_per_hour is not None and compatible.price_per_hour is not None
    assert cheaper.price_per_hour < 0.9 * compatible.price_per_hour
    assert sum(claim.max_capacity["cpu"] for claim in cheaper.claims) <= 40_000
