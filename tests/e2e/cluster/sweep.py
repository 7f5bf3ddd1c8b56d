"""Brings a cluster back to how it was before a test.

Finalizers are taken off by force: the controllers that would remove them are stopped by then. Workloads
go before nodes, so that nothing pending is left for the next test's controllers to buy machines for.
"""

from __future__ import annotations

from typing import Any

from .program import LEASE_NAMESPACE
from .rest import ApiError, Rest, object_path
from .waiting import wait_until

TEST_LABEL = "pykarpenter.sh/e2e"

_OWN_GROUPS = ("karpenter.sh", "karpenter.kwok.sh", "pykarpenter.sh", "autoscaling.x-k8s.io")
_CLUSTER_WIDE = (
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/deviceclasses",
    f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
)


def sweep(rest: Rest) -> None:
    """Delete all test namespaces' pods, all of our kinds, all nodes; test namespaces go on their own."""
    for namespace in _test_namespaces(rest):
        if namespace["metadata"].get("deletionTimestamp") is None:
            rest.delete(f"/api/v1/namespaces/{namespace['metadata']['name']}")
    # Their pods cannot come back once a namespace is on its way out.
    for namespace in _test_namespaces(rest):
        _empty(rest, f"/api/v1/namespaces/{namespace['metadata']['name']}/pods")
    for group in _OWN_GROUPS:
        for version in (rest.find(f"/apis/{group}") or {}).get("versions", []):
            for resource in rest.resources(f"/apis/{version['groupVersion']}"):
                _empty(rest, f"/apis/{version['groupVersion']}/{resource}")
    for collection in _CLUSTER_WIDE:
        _empty(rest, collection)


def _test_namespaces(rest: Rest) -> list[Any]:
    return rest.items("/api/v1/namespaces", labelSelector=TEST_LABEL)


def _empty(rest: Rest, collection: str) -> None:
    def is_empty() -> bool:
        left = [item for item in rest.items(collection) if not _is_built_in(item)]
        for item in left:
            _remove(rest, collection, item)
        return not left

    # A server that was just restarted answers 429 until its caches are filled.
    wait_until(is_empty, 30, what=f"{collection} is empty", retry_on=(ApiError,))


def _remove(rest: Rest, collection: str, item: dict[str, Any]) -> None:
    metadata = item["metadata"]
    # A namespaced object found by a list over all namespaces.
    prefix, plural = collection.rsplit("/", 1)
    if "namespace" in metadata and "/namespaces/" not in collection:
        prefix += f"/namespaces/{metadata['namespace']}"
    path = object_path(f"{prefix}/{plural}", metadata["name"])
    try:
        if metadata.get("finalizers"):
            rest.patch(path, {"metadata": {"finalizers": None}})
        rest.delete(path, grace_period_s=0)
    except ApiError as error:
        # 404: gone meanwhile. 409: changed meanwhile. The next round sees.
        if error.code not in (404, 409):
            raise


def _is_built_in(item: dict[str, Any]) -> bool:
    """What Kubernetes makes by itself and would make again."""
    name: str = item["metadata"]["name"]
    return name.startswith(("system-", "apiserver-"))
