"""Volumes decide where pods go: zones, limits, claims that wait, and claims that are missing."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.meta import find_condition
from tests.sim.worlds import in_cluster, node, pods, settle

ZONE = "topology.kubernetes.io/zone"


def storage(name: str, **fields) -> dict:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "disk.sim",
        "volumeBindingMode": "WaitForFirstConsumer",
        **fields,
    }


def volume_claim(name: str, storage_class: str = "fast") -> dict:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def pod_with(*claims: str, name: str = "p") -> dict:
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "c"}], "volumes": volumes},
    }


def placed(*objects: dict) -> tuple[dict[str, str], dict[str, str]]:
    """Node and PodScheduled message of each pod."""

    async def story(cluster):
        await cluster.install(list(objects))
        await settle()
        found = await pods(cluster)
        messages = {p.name: getattr(find_condition(p.status.conditions, "PodScheduled"), "message", "") for p in found}
        return {p.name: p.spec.node_name for p in found}, messages

    return in_cluster(story)


def test_allowed_topologies_of_the_class_choose_the_zone():
    topology = {"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}
    nodes, _ = placed(
        storage("fast", allowedTopologies=[topology]),
        volume_claim("data"),
        node("a", zone="a"),
        node("b", zone="b"),
        pod_with("data"),
    )
    assert nodes == {"p": "b"}


def test_missing_claim_is_named():
    nodes, messages = placed(node("a"), pod_with("nowhere"))
    assert nodes == {"p": ""}
    assert 'persistentvolumeclaim "nowhere" not found' in messages["p"]


def test_unbound_immediate_claim_keeps_its_pod_waiting():
    nodes, messages = placed(volume_claim("data", "unknown"), node("a"), pod_with("data"))
    assert nodes == {"p": ""}
    assert "pod has unbound immediate PersistentVolumeClaims" in messages["p"]


def test_attachment_limit_of_a_node_is_respected():
    limits = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "a"},
        "spec": {"drivers": [{"name": "disk.sim", "nodeID": "a", "allocatable": {"count": 1}}]},
    }
    nodes, messages = placed(
        storage("fast"), volume_claim("one"), volume_claim("two"), limits, node("a"), pod_with("one", "two")
    )
    assert nodes == {"p": ""}
    assert "node(s) exceed max volume count" in messages["p"]


def test_pod_waits_for_a_volume_in_a_zone_without_nodes():
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "old"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "csi": {"driver": "disk.sim", "volumeHandle": "v"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z"]}]}]
                }
            },
        },
    }
    bound = volume_claim("data")
    bound["spec"]["volumeName"] = "old"
    nodes, messages = placed(storage("fast"), volume, bound, node("a", zone="a"), pod_with("data"))
    assert nodes == {"p": ""}
    assert "node(s) had volume node affinity conflict" in messages["p"]


def test_gated_pod_waits_until_its_gates_are_gone():
    async def story(cluster):
        gated = pod_with()
        gated["spec"]["schedulingGates"] = [{"name": "quota"}]
        await cluster.install([node("a"), gated])
        await settle()
        before = (await pods(cluster))[0]
        await cluster.api.patch(kinds.POD, "p", {"spec": {"schedulingGates": []}}, "default")
        await settle()
        return before, (await pods(cluster))[0]

    before, after = in_cluster(story)
    condition = find_condition(before.status.conditions, "PodScheduled")
    assert (condition.status, condition.reason) == ("False", "SchedulingGated")
    assert after.spec.node_name == "a"
