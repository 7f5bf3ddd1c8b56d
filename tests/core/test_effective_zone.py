"""The zone that a waiting pod needs: own terms, and the groups of pods that it belongs to."""

import msgspec
import pytest

from pykarpenter.api import labels
from pykarpenter.api.pods import Pod
from pykarpenter.core.effective_zone import FLEXIBLE, NONE, ZonalPods, effective_zone
from pykarpenter.core.snapshot import ClusterSnapshot, NodeView

ZONES = ["a", "b", "c"]
RULES = labels.DEFAULT_RULES
SELECTOR = {"matchLabels": {"app": "web"}}
NEAR = {"topologyKey": labels.ZONE, "labelSelector": SELECTOR}
SPREAD = {**NEAR, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


def pod(name, app="web", namespace="shop", **spec):
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
            "spec": {"containers": [], **spec},
        },
        Pod,
    )


def zone_of(waiting, **running):
    """`running` says how many pods of app web run in which zone."""
    nodes = tuple(
        NodeView(name=zone, labels={labels.ZONE: zone}, pods=tuple(pod(f"{zone}{n}") for n in range(count)))
        for zone, count in running.items()
    )
    snapshot = ClusterSnapshot(now=0.0, nodes=nodes)
    return effective_zone(waiting, snapshot.volumes, ZONES, RULES, ZonalPods(snapshot))


def near(*terms):
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def apart(*terms):
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


@pytest.mark.parametrize(
    ("spec", "running", "expected"),
    [
        ({}, {"a": 3}, FLEXIBLE),
        ({"affinity": near(NEAR)}, {"b": 2}, "b"),
        ({"affinity": near(NEAR)}, {"a": 1, "b": 2}, FLEXIBLE),
        ({"affinity": near(NEAR)}, {}, FLEXIBLE),
        ({"affinity": apart(NEAR)}, {"a": 1, "b": 1}, "c"),
        ({"affinity": apart(NEAR)}, {"a": 1, "b": 1, "c": 1}, NONE),
        ({"topologySpreadConstraints": [SPREAD]}, {"a": 2, "b": 2, "c": 1}, "c"),
        ({"topologySpreadConstraints": [SPREAD]}, {"a": 1, "b": 1, "c": 1}, FLEXIBLE),
        ({"topologySpreadConstraints": [SPREAD], "nodeSelector": {labels.ZONE: "a"}}, {"a": 5}, "a"),
        ({"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]}, {"a": 9}, FLEXIBLE),
        ({"affinity": near({**NEAR, "topologyKey": "kubernetes.io/hostname"})}, {"a": 1}, FLEXIBLE),
        ({"affinity": near({**NEAR, "namespaces": ["other"]})}, {"a": 1}, NONE),
        ({"affinity": near(NEAR), "nodeSelector": {labels.ZONE: "c"}}, {"a": 1}, NONE),
    ],
)
def test_zonal_groups_narrow_the_zone_down(spec, running, expected):
    """Pods that wait for one zone show there, whichever rule sends them to it."""
    assert zone_of(pod("new", **spec), **running) == expected


def test_one_that_follows_others_has_no_zone_before_they_run():
    """Affinity to another app cannot begin a group of its own."""
    assert zone_of(pod("new", app="cache", affinity=near(NEAR))) == NONE
    assert zone_of(pod("new", app="cache", affinity=near(NEAR)), a=1) == "a"
