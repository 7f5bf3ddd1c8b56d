"""Every safety checker notices the breach it is there for; a checker that cannot fail proves nothing."""

from __future__ import annotations

import asyncio

from pykarpenter.api import kinds
from pykarpenter.kube.contract import DeleteOptions
from pykarpenter.kube.errors import ApiError
from pykarpenter.sim.checkers import Report, SafetyCheckers
from pykarpenter.sim.faults.actions import CLASS, pool_manifest
from pykarpenter.sim.journal import Journal
from tests.sim.cloud.test_sim_cloud import claim
from tests.sim.worlds import in_cluster, node, settle, workload


def broken_by(deed, *, limit: int = 0) -> list[str]:
    """The invariants that a careless program breaks."""

    async def main(cluster):
        await cluster.install([CLASS, pool_manifest("pool", limit)])
        report = Report()
        checkers = SafetyCheckers(cluster, Journal(cluster.store), report)
        await deed(cluster, cluster.client("program", [checkers]), checkers)
        return [v.invariant for v in report.violations]

    return in_cluster(main)


def claim_body(name: str, **metadata) -> dict:
    reference = {"group": "pykarpenter.sh", "kind": "SimNodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "pool"}, **metadata},
        "spec": {"nodeClassRef": reference, "requirements": []},
    }


async def launch(cluster, name: str, **metadata):
    """A NodeClaim with a machine of its own, its Node registered."""
    await cluster.install([claim_body(name, **metadata)])
    created = await cluster.api.get(kinds.NODE_CLAIM, name)
    view = await cluster.provider.create(claim(name, uid=created.uid))
    status = {"providerID": view.status.provider_id, "capacity": view.status.capacity}
    await cluster.api.patch(kinds.NODE_CLAIM, name, {"status": status}, subresource="status")
    await settle(60)
    body = {"spec": {"taints": None}}
    await cluster.api.patch(kinds.NODE, f"sim-{name}", body)
    await settle(5)
    return await cluster.api.get(kinds.NODE_CLAIM, name)


async def mark(cluster, name: str, kind: str, reason: str) -> None:
    condition = {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    current = await cluster.api.get(kinds.NODE_CLAIM, name)
    kept = [{"type": c.type, "status": c.status, "reason": c.reason, "message": c.message,
             "lastTransitionTime": c.last_transition_time} for c in current.status.conditions]  # fmt: skip
    body = {"status": {"conditions": [*kept, condition]}}
    await cluster.api.patch(kinds.NODE_CLAIM, name, body, subresource="status")


def test_s1_capacity_above_the_limit_is_noticed():
    async def deed(cluster, api, checkers):
        await launch(cluster, "one")
        await launch(cluster, "two")

    assert broken_by(deed, limit=2) == ["S1"]
    assert broken_by(deed, limit=100) == []


def test_s4_more_disturbed_machines_than_budgeted_are_noticed():
    async def deed(cluster, api, checkers):
        for name in ("one", "two"):
            await launch(cluster, name)
            await mark(cluster, name, "Initialized", "Initialized")
        await mark(cluster, "one", "DisruptionReason", "Empty")
        await mark(cluster, "two", "DisruptionReason", "Empty")

    assert broken_by(deed) == ["S4"]


def test_s5_s6_protected_pods_and_plain_deletes_are_noticed():
    async def deed(cluster, api, checkers):
        await launch(cluster, "one")
        annotations = {"karpenter.sh/do-not-disrupt": "true"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations}}
        pod["spec"] = {"containers": [{"name": "c", "image": "c"}]}
        await cluster.install([pod])
        await settle()
        await api.evict("p", "default")
        await settle(60)
        await cluster.install([pod])
        await settle()
        await api.delete(kinds.POD, "p", "default")

    assert broken_by(deed) == ["S5", "S6"]


def test_s7_ending_a_machine_under_a_running_pod_is_noticed():
    async def deed(cluster, api, checkers):
        launched = await launch(cluster, "one")
        await cluster.install([workload("Deployment", "web", 1)])
        await settle()
        await cluster.provider.delete(launched)

    assert broken_by(deed) == ["S7"]


def test_s9_writing_without_the_lease_is_noticed():
    async def deed(cluster, api, checkers):
        checkers.require_lease("leader", "kube-system")
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "leader", "namespace": "kube-system"},
            "spec": {
                "holderIdentity": "another",
                "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000000Z",
            },
        }
        await cluster.install([lease])
        await api.create(kinds.NODE_CLAIM, claim_body("one"))

    assert broken_by(deed) == ["S9"]


def test_s10_writing_an_unmanaged_node_is_noticed():
    async def deed(cluster, api, checkers):
        await cluster.install([node("theirs")])
        await api.patch(kinds.NODE, "theirs", {"metadata": {"labels": {"x": "y"}}})

    assert broken_by(deed) == ["S10"]


def test_s11_a_claim_gone_before_its_machine_is_noticed():
    async def deed(cluster, api, checkers):
        await launch(cluster, "one")
        try:
            await cluster.api.delete(kinds.NODE_CLAIM, "one", options=DeleteOptions(grace_period_s=0))
        except ApiError as error:
            raise AssertionError(error) from error
        await asyncio.sleep(1)

    assert broken_by(deed) == ["S11"]
