"""How many machines a static pool gets and loses, and in what order."""

from __future__ import annotations

import pytest

from pykarpenter.api import labels
from pykarpenter.api.meta import ObjectMeta, OwnerReference
from pykarpenter.api.nodepool import NodeClaim, NodeClaimStatus, NodePool, NodePoolSpec
from pykarpenter.api.pods import Pod, PodSpec, PodStatus
from pykarpenter.core.snapshot import NodeView
from pykarpenter.core.static_capacity import Shortfall, shortfall, surplus

NOW = 1_767_225_600.0


def pool(replicas: int, limit: str | None = None) -> NodePool:
    return NodePool(
        metadata=ObjectMeta(name="p"),
        spec=NodePoolSpec(replicas=replicas, limits={} if limit is None else {"nodes": limit}),
    )


@pytest.mark.promise("API-4.20")
@pytest.mark.parametrize(
    ("asked", "counts", "expected"),
    [
        (pool(3), (0, 0, 0, 0), Shortfall(3, False)),
        (pool(3), (3, 0, 0, 0), Shortfall(0, False)),
        (pool(3), (5, 0, 0, 0), Shortfall(0, False)),
        (pool(3), (1, 0, 0, 1), Shortfall(1, False)),
        (pool(3), (2, 1, 0, 0), Shortfall(0, False)),
        (pool(5, "4"), (2, 0, 0, 0), Shortfall(2, True)),
        (pool(5, "6"), (2, 0, 3, 0), Shortfall(1, True)),
        (pool(5, "5"), (2, 0, 3, 0), Shortfall(0, True)),
    ],
)
def test_what_is_missing_is_created_within_the_node_limit(
    asked: NodePool, counts: tuple[int, int, int, int], expected: Shortfall
) -> None:
    """Active, about to be disrupted, deleting and promised machines all count where they must."""
    assert shortfall(asked, *counts) == expected


def machine(name: str, *pods: Pod, launched: bool = True) -> NodeView:
    claim = NodeClaim(
        metadata=ObjectMeta(name=name), status=NodeClaimStatus(provider_id=f"kwok://{name}" if launched else "")
    )
    return NodeView(name=name, claim=claim, pods=pods)


def pod(daemon: bool = False, protected: bool = False, priority: int = 0) -> Pod:
    owner = [OwnerReference(api_version="apps/v1", kind="DaemonSet")] if daemon else []
    annotations = {labels.DO_NOT_DISRUPT: "true"} if protected else {}
    return Pod(
        metadata=ObjectMeta(name="x", annotations=annotations, owner_references=owner),
        spec=PodSpec(priority=priority),
        status=PodStatus(phase="Running"),
    )


@pytest.mark.promise("API-4.21")
@pytest.mark.promise("DIS-14.3")
def test_the_least_missed_machine_goes_first() -> None:
    """Work that runs is worth more than machines that stand ready."""
    machines = [
        machine("protected-empty", pod(daemon=True, protected=True)),
        machine("protected", pod(protected=True)),
        machine("busy", pod(), pod()),
        machine("light", pod()),
        machine("daemons", pod(daemon=True)),
        machine("starting", launched=False),
        machine("bare"),
    ]
    order = [view.name for view in surplus(pool(0), machines, NOW)]
    assert order == ["starting", "bare", "daemons", "light", "busy", "protected-empty", "protected"]
    assert [view.name for view in surplus(pool(5), machines, NOW)] == ["starting", "bare"]
    assert surplus(pool(9), machines, NOW) == []


@pytest.mark.promise("API-4.21")
def test_b27_a_value_that_cannot_be_read_protects_only_where_the_operator_asked_for_it() -> None:
    """The same setting counts for scale-down as for every other disturbance."""
    unreadable = Pod(
        metadata=ObjectMeta(name="x", annotations={labels.DO_NOT_DISRUPT: "yes"}), status=PodStatus(phase="Running")
    )
    machines = [machine("a", unreadable), machine("b", pod(), pod())]
    assert [view.name for view in surplus(pool(1), machines, NOW)] == ["a"]
    assert [view.name for view in surplus(pool(1), machines, NOW, protect_unparsable=True)] == ["b"]
