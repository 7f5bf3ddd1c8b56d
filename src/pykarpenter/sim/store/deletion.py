"""How an object goes: at once, after its finalizers, or after the grace period of a running pod."""

from __future__ import annotations

from pykarpenter.api.timestamps import format_timestamp, parse_timestamp
from pykarpenter.sim.schema.field_errors import not_supported
from pykarpenter.sim.store.entries import Json, with_metadata
from pykarpenter.sim.store.garbage import FOREGROUND, ORPHAN
from pykarpenter.sim.store.refusals import failed_precondition, invalid_options
from pykarpenter.sim.store.requests import DeleteRequest
from pykarpenter.sim.store.resources import Resource

DEFAULT_GRACE_S = 30
_PROPAGATIONS = ("Background", "Foreground", "Orphan")


def check_preconditions(resource: Resource, obj: Json, request: DeleteRequest) -> None:
    meta = obj["metadata"]
    if request.uid is not None and request.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({request.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise failed_precondition(resource, meta["name"], why)
    if request.resource_version is not None and request.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({request.resource_version}) does not match the "
            f"ResourceVersion in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise failed_precondition(resource, meta["name"], why)
    if request.propagation is not None and request.propagation not in _PROPAGATIONS:
        choices = ["Foreground", "Background", "Orphan", "nil"]
        raise invalid_options("DeleteOptions", not_supported("propagationPolicy", request.propagation, choices))


def is_finished(obj: Json) -> bool:
    """Being deleted, with nothing left to wait for."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and not (
        meta.get("finalizers") or meta.get("deletionGracePeriodSeconds") or _content_finalizers(obj)
    )


def _content_finalizers(obj: Json) -> list[str]:
    """A namespace also waits for its content."""
    if obj["kind"] != "Namespace":
        return []
    return (obj.get("spec") or {}).get("finalizers") or []


def _finalizers(meta: Json, propagation: str | None) -> list[str]:
    """The finalizers a deletion leaves: the propagation policy adds and removes the collector's own."""
    found: list[str] = list(meta.get("finalizers") or ())
    if propagation is None:
        return found
    kept = [item for item in found if item not in (FOREGROUND, ORPHAN)]
    return kept + {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(propagation, [])


def pod_grace_s(pod: Json, asked: int | None) -> int:
    """How long a pod may take to stop; nothing runs of one that was never placed or has finished."""
    spec, phase = pod.get("spec", {}), (pod.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    grace = asked if asked is not None else spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
    return int(grace) if grace >= 0 else 1


def marked(resource: Resource, obj: Json, request: DeleteRequest, now: float) -> Json | None:
    """The object as the deletion leaves it, or None when it goes at once."""
    meta = obj["metadata"]
    finalizers = _finalizers(meta, request.propagation)
    is_pod = resource.plural == "pods" and not resource.group
    if "deletionTimestamp" in meta:
        obj = _shortened(obj, request, now) if is_pod else obj
        grace = obj["metadata"].get("deletionGracePeriodSeconds", 0)
        if not finalizers and not grace and not _content_finalizers(obj):
            return None
        return with_metadata(obj, finalizers=finalizers or None) if finalizers != meta.get("finalizers", []) else obj
    grace = pod_grace_s(obj, request.grace_period_s) if is_pod else 0
    if not finalizers and not grace and not _content_finalizers(obj):
        return None
    changes: Json = {"deletionTimestamp": format_timestamp(now + grace), "deletionGracePeriodSeconds": grace}
    if finalizers:
        changes["finalizers"] = finalizers
    if meta.get("generation"):
        changes["generation"] = meta["generation"] + 1
    if resource.plural == "namespaces":
        obj = {**obj, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}
    return with_metadata(obj, **changes)


def last_state(resource: Resource, obj: Json, now: float) -> Json:
    """What watchers see of an object that goes at once: a pod carries the marks of its deletion even then."""
    meta = obj["metadata"]
    if resource.plural != "pods" or "deletionTimestamp" in meta:
        return obj
    return with_metadata(
        obj,
        deletionTimestamp=format_timestamp(now),
        deletionGracePeriodSeconds=0,
        generation=meta.get("generation", 0) + 1,
    )


def _shortened(obj: Json, request: DeleteRequest, now: float) -> Json:
    """A second delete may shorten the grace period, never lengthen it."""
    meta = obj["metadata"]
    current, asked = meta.get("deletionGracePeriodSeconds", 0), request.grace_period_s
    if asked is None or not current:
        return obj
    asked = asked if asked >= 0 else 1
    if asked >= current:
        return obj
    ends = parse_timestamp(meta["deletionTimestamp"]) - current + asked
    if ends < now:
        # The whole period is over already: end now, but leave the last word to the kubelet unless it was the caller's.
        ends, asked = now, min(asked, 1)
    return with_metadata(obj, deletionTimestamp=format_timestamp(ends), deletionGracePeriodSeconds=asked)
