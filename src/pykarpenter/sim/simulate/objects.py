"""The objects of snapshots, dumps and manifests as they would be created: what controllers make again is left out.

A pod is created only when nothing in the input would create it: its controller, or the Deployment behind a
ReplicaSet that the dump does not hold, makes it anew. What is finished stays finished and is left out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pykarpenter.kube.contract import Json

GROUP = "pykarpenter.sh"
# Machines are bought anew, and these are made by their controllers.
_DERIVED = frozenset(
    {
        "Node",
        "NodeClaim",
        "Event",
        "Lease",
        "CSINode",
        "VolumeAttachment",
        "PersistentVolume",
        "ControllerRevision",
        "ResourceSlice",
    }
)
_SERVER_FIELDS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_PROVISIONER = "disk.pykarpenter.sh"


def fit_for_the_cloud(body: Json) -> Json:
    """A copy without what the server sets; pools refer to the embedded cloud's class, other classes are left out."""
    result = copy.deepcopy(body)
    result.pop("status", None)
    for field in _SERVER_FIELDS:
        result["metadata"].pop(field, None)
    if result.get("kind") == "NodePool":
        template = _below(result, "spec", "template", "spec")
        template["nodeClassRef"] = {"group": GROUP, "kind": "SimNodeClass", "name": "default"}
    return result


def _below(body: Json, *path: str) -> Json:
    """The object at a path; an empty one that belongs to nothing when something else is there."""
    found: Any = body
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def plain_objects(found: Sequence[tuple[Json, Mapping[str, Any]]]) -> tuple[Json, ...]:
    """Each object as it would be created, with what the input says of it; namespaces that are missing come first."""
    present = {str(_below(dict(raw), "metadata").get("uid")) for _, raw in found}
    deployments = [body for body, _ in found if body["kind"] == "Deployment"]
    result: list[Json] = []
    for body, raw in found:
        if body["kind"] in _DERIVED or _is_finished(dict(raw)):
            continue
        meta = body["metadata"]
        owners = _owners(meta)
        if body["kind"] in ("Pod", "ReplicaSet"):
            if any(owner.get("uid") in present for owner in owners) or _is_made(body, owners, deployments):
                continue
            meta.pop("ownerReferences", None)
        if body["kind"] == "Pod":
            body["spec"] = {k: v for k, v in _below(body, "spec").items() if k != "nodeName"}
        if body["kind"] == "PersistentVolumeClaim":
            # Its volume stays where it was; a new one is made where the pod runs.
            body["spec"] = {k: v for k, v in _below(body, "spec").items() if k != "volumeName"}
            meta.pop("annotations", None)
        result.append(body)
    return (*_namespaces(result), *result)


def _owners(meta: Json) -> list[Json]:
    owners = meta.get("ownerReferences")
    return [owner for owner in owners if isinstance(owner, dict)] if isinstance(owners, list) else []


def _is_finished(raw: Json) -> bool:
    status = _below(raw, "status")
    if raw.get("kind") == "Pod":
        leaving = bool(_below(raw, "metadata").get("deletionTimestamp"))
        return leaving or status.get("phase") in ("Succeeded", "Failed")
    conditions = status.get("conditions")
    if raw.get("kind") != "Job" or not isinstance(conditions, list):
        return False
    held = [c.get("type") for c in conditions if isinstance(c, dict) and c.get("status") == "True"]
    return "Complete" in held or "Failed" in held


def _is_made(body: Json, owners: list[Json], deployments: list[Json]) -> bool:
    """Whether something else makes it: a Deployment whose ReplicaSet is not in the input, a daemon, a kubelet."""
    kinds = {str(owner.get("kind")) for owner in owners}
    if kinds & {"DaemonSet", "Node"}:
        return True
    makers = {"ReplicaSet"} if body["kind"] == "Pod" else {"Deployment"}
    return bool(kinds & makers) and any(_selects(item, body) for item in deployments)


def _selects(deployment: Json, body: Json) -> bool:
    wanted = _below(deployment, "spec", "selector", "matchLabels")
    labels = _below(body, "metadata", "labels")
    same = deployment["metadata"].get("namespace", "default") == body["metadata"].get("namespace", "default")
    return same and bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())


def _namespaces(objects: list[Json]) -> list[Json]:
    """The namespaces that the objects live in and nobody wrote down."""
    used = {str(body["metadata"].get("namespace") or "") for body in objects}
    given = {str(body["metadata"].get("name")) for body in objects if body["kind"] == "Namespace"}
    missing = sorted(used - given - {""})
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in missing]


def with_storage_classes(objects: Sequence[Json], later: Iterable[Json]) -> tuple[list[Json], list[str]]:
    """StorageClasses that claims name and the input lacks, as `plan` takes them, and what to say about it."""
    classes = [body for body in (*objects, *later) if body.get("kind") == "StorageClass"]
    given = {str(body["metadata"].get("name")) for body in classes}
    has_default = any(_below(c, "metadata", "annotations").get(_DEFAULT_CLASS) == "true" for c in classes)
    wanted = dict.fromkeys(name for body in (*objects, *later) for name in _named_classes(body))
    missing = [name for name in wanted if name and name not in given]
    added = [_storage_class(name) for name in missing]
    warnings = [f"storageclass {name} is not in the input; taken as WaitForFirstConsumer" for name in missing]
    if "" in wanted and not has_default:
        added.append(_storage_class("default", default=True))
        warnings.append("no storageclass is the default; claims that name none wait for their first pod")
    return added, warnings


def _storage_class(name: str, *, default: bool = False) -> Json:
    meta: Json = {"name": name}
    if default:
        meta["annotations"] = {_DEFAULT_CLASS: "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": meta,
        "provisioner": _PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _named_classes(body: Json) -> Iterable[str]:
    """Names of the classes that an object's claims ask for; an empty one means the default."""
    specs = [_below(body, "spec")] if body.get("kind") == "PersistentVolumeClaim" else []
    if body.get("kind") == "StatefulSet":
        templates = _below(body, "spec").get("volumeClaimTemplates")
        specs = [_below(t, "spec") for t in templates if isinstance(t, dict)] if isinstance(templates, list) else []
    for spec in specs:
        # An empty text in a manifest asks for no class at all.
        if spec.get("storageClassName") != "":
            yield str(spec.get("storageClassName") or "")
