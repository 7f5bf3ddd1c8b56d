"""Whatever is sent, the store accepts it or refuses it with an API error: never another exception."""

from __future__ import annotations

import contextlib
import copy
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pykarpenter.api.crds import crds
from pykarpenter.kube.contract import PatchType
from pykarpenter.kube.errors import ApiError, BadRequest
from pykarpenter.sim.server.protobuf import MAGIC, decode
from pykarpenter.sim.store import ListRequest

from .world import World, pod_spec, workload_spec

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "Exists", "1Gi", "-1", "metadata", "Always", "🙂", "a/b/c", "2027-01-15T08:00:00Z"])
    | st.text(max_size=5)
)
KEYS = st.sampled_from(
    ["name", "metadata", "spec", "status", "labels", "finalizers", "ownerReferences", "containers", "resources"]
) | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=3), max_leaves=6
)

CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
        }
    },
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {}}}
        ]
    },
}
SPREAD = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]
POD = {
    "metadata": {
        "name": "o",
        "labels": {"app": "web"},
        "finalizers": ["example.com/a"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
    },
    "spec": pod_spec(
        affinity=AFFINITY,
        topologySpreadConstraints=SPREAD,
        tolerations=[{"key": "a", "operator": "Exists"}],
        nodeSelector={"a": "b"},
        schedulingGates=[{"name": "g"}],
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
}
OBJECTS: dict[str, dict[str, Any]] = {
    "pods": POD,
    "nodes": {
        "metadata": {"name": "o"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "providerID": "x"},
        "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    "deployments": {"metadata": {"name": "o"}, "spec": workload_spec(strategy={"type": "Recreate"})},
    "jobs": {"metadata": {"name": "o"}, "spec": {"template": {"spec": pod_spec(restartPolicy="Never")}}},
    "replicationcontrollers": {"metadata": {"name": "o"}, "spec": workload_spec(selector={"app": "web"})},
    "poddisruptionbudgets": {
        "metadata": {"name": "o"},
        "spec": {
            "minAvailable": 1,
            "selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        },
    },
    "priorityclasses": {"metadata": {"name": "o"}, "value": 1},
    "storageclasses": {"metadata": {"name": "o"}, "provisioner": "p"},
    "persistentvolumeclaims": {"metadata": {"name": "o"}, "spec": {"accessModes": ["ReadWriteOnce"]}},
    "namespaces": {"metadata": {"name": "o"}},
    "nodepools": {
        "metadata": {"name": "o"},
        "spec": {
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"nodeClassRef": CLASS, "requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
            },
            "limits": {"cpu": "1"},
            "disruption": {"budgets": [{"nodes": "10%"}]},
        },
    },
    "customresourcedefinitions": crds()[0],
}


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        found += _paths(item, (*path, key))
    return found


def _broken(obj: dict[str, Any], seed: int, value: Any) -> dict[str, Any]:
    """The object with one member, anywhere in it, replaced."""
    result = copy.deepcopy(obj)
    path = random.Random(seed).choice(_paths(result))
    parent: Any = result
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return result


def _world() -> World:
    world = World()
    for manifest in crds():
        world.store.create(world.kind("customresourcedefinitions"), manifest)
    return world


_SHARED = _world()


def _create(world: World, plural: str, body: Any) -> Any:
    resource = world.kind(plural)
    try:
        return world.store.create(resource, body, "default" if resource.namespaced else "")
    except ApiError:
        return None


def _remove(world: World, plural: str, entry: Any) -> None:
    resource, meta = world.kind(plural), entry.metadata
    found = world.store.find(resource, meta["name"], meta.get("namespace", ""))
    if found is not None and meta.get("finalizers"):
        world.store.remove_finalizer(resource, found, "example.com/a")
    if world.store.find(resource, meta["name"], meta.get("namespace", "")) is not None:
        world.store.delete(resource, meta["name"], meta.get("namespace", ""))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(set(OBJECTS) - {"customresourcedefinitions"})), st.integers(0, 10**6), VALUES)
def test_broken_objects_are_refused_in_order(plural: str, seed: int, value: Any) -> None:
    """One wrong member anywhere, of any type."""
    entry = _create(_SHARED, plural, _broken(OBJECTS[plural], seed, value))
    if entry is not None:
        _remove(_SHARED, plural, entry)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["pods", "nodes", "deployments", "poddisruptionbudgets", "nodepools"]),
    st.sampled_from([PatchType.MERGE, PatchType.STRATEGIC]),
    st.sampled_from(["", "status", "scale"]),
    st.integers(0, 10**6),
    VALUES,
)
def test_broken_patches_are_refused_in_order(
    plural: str, patch_type: PatchType, subresource: str, seed: int, value: Any
) -> None:
    """A patch may put anything anywhere."""
    world = World() if plural != "nodepools" else _world()
    assert _create(world, plural, OBJECTS[plural]) is not None
    patch = _broken(OBJECTS[plural], seed, value)
    try:
        world.patch(plural, "o", patch, patch_type=patch_type, subresource=subresource)
        world.get(plural, "o")
    except ApiError:
        pass


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), VALUES)
def test_broken_definitions_are_refused_in_order(seed: int, value: Any) -> None:
    """A definition is data that later checks rest on; a bad one must not be accepted and then break them."""
    world = World()
    entry = _create(world, "customresourcedefinitions", _broken(OBJECTS["customresourcedefinitions"], seed, value))
    if entry is not None and entry.obj["spec"]["names"]["plural"] == "nodepools":
        _create(world, "nodepools", {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **OBJECTS["nodepools"]})


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["op", "path", "value", "from"]), VALUES, max_size=4), max_size=3))
def test_broken_json_patches_are_refused_in_order(operations: list[Any]) -> None:
    """Operations of any shape."""
    world = World()
    world.create("configmaps", "o", data={"k": "v"})
    with contextlib.suppress(ApiError):
        world.patch("configmaps", "o", operations, patch_type=PatchType.JSON)


@settings(max_examples=80, deadline=None)
@given(
    st.text(alphabet="ab=!,()<> inot.-/", max_size=12),
    st.text(alphabet="metadata.name=!,sp", max_size=20),
    st.text(max_size=8),
)
def test_any_selector_and_token_gets_an_answer(labels: str, fields: str, token: str) -> None:
    """Text from a query string."""
    with contextlib.suppress(ApiError):
        _SHARED.store.list_page(_SHARED.kind("pods"), ListRequest("", labels, fields, 1, token))


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_protobuf_or_refused(data: bytes) -> None:
    """Bytes from the network."""
    with contextlib.suppress(BadRequest):
        decode(MAGIC + data)
