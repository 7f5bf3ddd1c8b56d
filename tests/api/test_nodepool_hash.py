"""The hash decides whether nodes drifted: one wrong bit replaces a fleet."""

import copy
import json

import msgspec
import pytest

from pykarpenter.api.nodepool import NodePool
from pykarpenter.api.nodepool_hash import nodepool_hash

EKS = {
    "expireAfter": "336h",
    "terminationGracePeriod": "24h",
    "nodeClassRef": {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"},
}
EC2 = {
    "expireAfter": "720h",
    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
}


def hash_of(template, **spec):
    body = {"metadata": {"name": "x"}, "spec": {"template": template, **spec}}
    return nodepool_hash(msgspec.json.decode(json.dumps(body), type=NodePool))


@pytest.mark.promise("API-3.6.1")
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ({"spec": EKS}, "4012513481623584108"),
        ({"metadata": {}, "spec": EKS}, "4012513481623584108"),
        (
            {"spec": EKS | {"taints": [{"key": "CriticalAddonsOnly", "effect": "NoSchedule"}]}},
            "4982684901400657622",
        ),
        ({"spec": EC2}, "6821555240594823858"),
    ],
)
def test_hash_is_the_number_karpenter_writes(template, expected):
    """Published pools of real clusters; after a change of controller their nodes must not drift."""
    assert hash_of(template) == expected


@pytest.mark.promise("API-3.6.1")
def test_default_expiry_is_hashed_like_the_written_one():
    """An API server fills the default in; a manifest read from a file lacks it."""
    assert hash_of({"spec": {"nodeClassRef": EC2["nodeClassRef"]}}) == "6821555240594823858"


@pytest.mark.promise("API-3.6.2")
@pytest.mark.promise("DIS-13.3")
def test_fields_outside_the_template_and_requirements_do_not_count():
    """They are compared otherwise or do not touch existing nodes."""
    requirement = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
    changed = hash_of(
        {"spec": EC2 | {"requirements": [requirement]}},
        limits={"cpu": "10"},
        weight=7,
        disruption={"consolidateAfter": "5m"},
    )
    assert changed == hash_of({"spec": EC2})


@pytest.mark.promise("API-3.6.3")
@pytest.mark.parametrize(
    "explicit",
    [
        {"metadata": {"labels": {}}, "spec": EC2},
        {"metadata": {"annotations": {}}, "spec": EC2},
        {"spec": EC2 | {"taints": []}},
        {"spec": EC2 | {"startupTaints": []}},
        {"spec": EC2 | {"terminationGracePeriod": "0s"}},
    ],
)
def test_explicit_empty_values_count(explicit):
    """Karpenter tells absent from empty, so a pool that has `taints: []` has another number."""
    assert hash_of(explicit) != hash_of({"spec": EC2})


@pytest.mark.promise("API-3.6.3")
def test_never_is_hashed_as_absent_and_zero_is_not():
    """`Never` has no duration to hash."""
    never = hash_of({"spec": EC2 | {"expireAfter": "Never"}})
    null = hash_of({"spec": EC2 | {"expireAfter": None}})
    assert never == null != hash_of({"spec": EC2 | {"expireAfter": "0s"}})


@pytest.mark.promise("API-3.6.3")
def test_absence_survives_a_copy_and_a_round_trip():
    """Snapshots are copied and written to files; the number must come out the same."""
    pool = msgspec.json.decode(json.dumps({"spec": {"template": {"spec": EC2}}}), type=NodePool)
    again = msgspec.json.decode(msgspec.json.encode(pool), type=NodePool)
    assert nodepool_hash(again) == nodepool_hash(copy.deepcopy(pool)) == nodepool_hash(pool)


@pytest.mark.promise("API-3.6.4")
def test_order_of_labels_and_taints_does_not_matter():
    """Reordering a manifest must not replace nodes."""
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "v", "effect": "NoExecute"}]
    one = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": EC2 | {"taints": taints}}
    two = {"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": EC2 | {"taints": taints[::-1]}}
    assert hash_of(one) == hash_of(two)


@pytest.mark.promise("API-3.6.2")
@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"a": "b"}}, "spec": EC2},
        {"metadata": {"annotations": {"a": "b"}}, "spec": EC2},
        {"spec": EC2 | {"startupTaints": [{"key": "a", "effect": "NoSchedule"}]}},
        {"spec": EC2 | {"taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2024-01-01T00:00:00Z"}]}},
        {"spec": EC2 | {"nodeClassRef": EC2["nodeClassRef"] | {"name": "other"}}},
    ],
)
def test_every_hashed_field_changes_the_hash(change):
    """A field that did not count would let nodes keep an outdated template."""
    assert hash_of(change) != hash_of({"spec": EC2})
