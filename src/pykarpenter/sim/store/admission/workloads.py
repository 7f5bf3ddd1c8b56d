"""Deployments and their relatives: defaults, selectors that must match their own pods, templates as strict as pods."""

from __future__ import annotations

from collections.abc import Iterator

from pykarpenter.sim.schema.field_errors import FieldError, forbidden_field, invalid_value, not_supported, required
from pykarpenter.sim.store.admission.pod_defaults import defaulted_spec
from pykarpenter.sim.store.admission.pod_validation import pod_spec_errors, selector_errors, unreadable_amount
from pykarpenter.sim.store.admission.resource_lists import unreadable_quantity
from pykarpenter.sim.store.admission.shares import is_nothing, share_errors
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.metadata import label_errors
from pykarpenter.sim.store.refusals import invalid
from pykarpenter.sim.store.resources import Resource
from pykarpenter.sim.store.selectors import selector_matches

_QUARTER = {"maxSurge": "25%", "maxUnavailable": "25%"}
_DEFAULTS: dict[str, Json] = {
    "deployments": {
        "replicas": 1,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _QUARTER},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "replicasets": {"replicas": 1},
    "replicationcontrollers": {"replicas": 1},
    "statefulsets": {
        "replicas": 1,
        "serviceName": "",
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    "daemonsets": {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "revisionHistoryLimit": 10,
    },
    "jobs": {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "manualSelector": False,
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    },
}
KINDS = frozenset(_DEFAULTS)
_COUNTS = (
    "replicas",
    "parallelism",
    "completions",
    "backoffLimit",
    "minReadySeconds",
    "revisionHistoryLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
)
_CHOICES = {
    "completionMode": ["NonIndexed", "Indexed"],
    "podReplacementPolicy": ["Failed", "TerminatingOrFailed"],
}
_CONTROLLER_UID, _JOB_NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"


def admit(resource: Resource, obj: Json, old: Json | None) -> Json:
    """The workload with defaults; raises Invalid or BadRequest."""
    spec = obj.get("spec") or {}
    if old is not None and spec is old.get("spec"):
        return obj
    template = spec.get("template") or {}
    unreadable = unreadable_amount(template.get("spec") or {}, "spec.template.spec")
    if unreadable is not None:
        raise unreadable_quantity(resource.kind, resource.version, *unreadable)
    template = {**template, "spec": defaulted_spec(template.get("spec") or {})}
    # An empty strategy is one that was not stated.
    spec = {**spec, **{key: value for key, value in _DEFAULTS[resource.plural].items() if spec.get(key) in (None, {})}}
    spec["template"] = template
    if resource.plural == "deployments":
        spec["strategy"] = _strategy(spec["strategy"])
    if resource.plural == "jobs":
        spec = _job_spec(spec, obj["metadata"])
    if resource.plural == "replicationcontrollers" and not spec.get("selector"):
        spec["selector"] = (template.get("metadata") or {}).get("labels") or {}
    errors = [*_errors(resource, spec), *(_fixed(resource, spec, old["spec"]) if old is not None else ())]
    if errors:
        raise invalid(resource, obj["metadata"].get("name", ""), errors)
    return {**obj, "spec": spec}


def _strategy(strategy: Json) -> Json:
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return strategy
    return {"type": "RollingUpdate", "rollingUpdate": {**_QUARTER, **(strategy.get("rollingUpdate") or {})}}


def _job_spec(spec: Json, meta: Json) -> Json:
    """A job counts its pods by a label with its own UID, unless it brings a selector."""
    if "completions" not in spec and "parallelism" not in spec:
        spec = {**spec, "completions": 1}
    spec = {"parallelism": 1, **spec}
    if spec.get("manualSelector") or spec.get("selector"):
        return spec
    identity = {_CONTROLLER_UID: meta["uid"], _JOB_NAME: meta.get("name", "")}
    pod_meta = spec["template"].get("metadata") or {}
    labels = {
        **(pod_meta.get("labels") or {}),
        **identity,
        "controller-uid": meta["uid"],
        "job-name": identity[_JOB_NAME],
    }
    return {
        **spec,
        "selector": {"matchLabels": {_CONTROLLER_UID: meta["uid"]}},
        "template": {**spec["template"], "metadata": {**pod_meta, "labels": labels}},
    }


def _errors(resource: Resource, spec: Json) -> Iterator[FieldError]:
    for field in _COUNTS:
        if (number := spec.get(field)) is not None and number < 0:
            yield invalid_value(f"spec.{field}", number, "must be greater than or equal to 0")
    for field, choices in _CHOICES.items():
        if spec.get(field) is not None and spec[field] not in choices:
            yield not_supported(f"spec.{field}", spec[field], choices)
    yield from _selection_errors(resource, spec)
    yield from pod_spec_errors(_with_claimed_volumes(spec), "spec.template.spec")
    pods = spec["template"]["spec"]
    if resource.plural == "jobs":
        if pods["restartPolicy"] == "Always":
            yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif pods["restartPolicy"] != "Always":
        yield not_supported("spec.template.spec.restartPolicy", pods["restartPolicy"], ["Always"])
    if resource.plural in ("deployments", "replicasets") and pods.get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in ReplicaSet is not Supported"
        yield forbidden_field("spec.template.spec.activeDeadlineSeconds", detail)
    if resource.plural == "deployments":
        yield from _deployment_errors(spec)
    elif resource.plural == "statefulsets":
        yield from _stateful_errors(spec)
    elif resource.plural == "daemonsets":
        yield from _daemon_errors(spec["updateStrategy"])


def _selection_errors(resource: Resource, spec: Json) -> Iterator[FieldError]:
    """A selector that can be read, takes something, and takes the pods of its own template."""
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector")
    if resource.plural == "replicationcontrollers":
        matches = all(labels.get(key) == value for key, value in spec["selector"].items())
    else:
        unreadable = list(selector_errors(selector, "spec.selector"))
        yield from unreadable
        if unreadable:
            yield invalid_value("spec.selector", selector, "invalid label selector")
            return
        matches = selector_matches(selector, labels)
        if selector is None:
            yield required("spec.selector")
        elif selector in ({}, {"matchLabels": {}}):
            yield invalid_value("spec.selector", selector, f"empty selector is invalid for {resource.kind.lower()}")
    if not matches:
        detail = "`selector` does not match template `labels`"
        yield invalid_value("spec.template.metadata.labels", labels or None, detail)
    yield from label_errors("spec.template.metadata.labels", labels)


def _deployment_errors(spec: Json) -> Iterator[FieldError]:
    strategy, deadline = spec["strategy"], spec.get("progressDeadlineSeconds")
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "Recreate":
        if rolling is not None:
            detail = "may not be specified when strategy `type` is 'Recreate'"
            yield forbidden_field("spec.strategy.rollingUpdate", detail)
    elif strategy["type"] == "RollingUpdate":
        yield from _rolling_errors(rolling or {}, "spec.strategy.rollingUpdate")
    else:
        yield not_supported("spec.strategy", _as_told(strategy), ["Recreate", "RollingUpdate"])
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        yield invalid_value("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _rolling_errors(rolling: Json, path: str) -> Iterator[FieldError]:
    surge, unavailable = rolling.get("maxSurge"), rolling.get("maxUnavailable")
    yield from share_errors(unavailable, f"{path}.maxUnavailable")
    yield from share_errors(surge, f"{path}.maxSurge", at_most_all=False)
    if is_nothing(surge) and is_nothing(unavailable):
        yield invalid_value(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")


def _stateful_errors(spec: Json) -> Iterator[FieldError]:
    strategy, policy = spec["updateStrategy"], spec["podManagementPolicy"]
    if policy not in ("OrderedReady", "Parallel"):
        yield invalid_value("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    if strategy.get("type", "RollingUpdate") not in ("OnDelete", "RollingUpdate"):
        detail = "must be 'RollingUpdate' or 'OnDelete'"
        yield invalid_value("spec.updateStrategy", _as_told(strategy), detail)
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    if partition < 0:
        path = "spec.updateStrategy.rollingUpdate.partition"
        yield invalid_value(path, partition, "must be greater than or equal to 0")


def _daemon_errors(strategy: Json) -> Iterator[FieldError]:
    if strategy.get("type", "RollingUpdate") not in ("OnDelete", "RollingUpdate"):
        yield not_supported("spec.updateStrategy", _as_told(strategy), ["RollingUpdate", "OnDelete"])
        return
    rolling, path = strategy.get("rollingUpdate") or {}, "spec.updateStrategy.rollingUpdate"
    for field in ("maxUnavailable", "maxSurge"):
        yield from share_errors(rolling.get(field), f"{path}.{field}")
    if is_nothing(rolling.get("maxUnavailable", 1)) and is_nothing(rolling.get("maxSurge", 0)):
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def _as_told(strategy: Json) -> Json:
    """A strategy as refusals show it."""
    return {"Type": strategy["type"], "RollingUpdate": strategy.get("rollingUpdate")}


def _with_claimed_volumes(spec: Json) -> Json:
    """The pods' spec with the volumes that a StatefulSet adds to each of them: containers may mount those."""
    pod_spec: Json = spec["template"]["spec"]
    claims = [(item.get("metadata") or {}).get("name", "") for item in spec.get("volumeClaimTemplates") or ()]
    if not claims:
        return pod_spec
    added = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    kept = [volume for volume in pod_spec.get("volumes") or () if volume.get("name") not in claims]
    return {**pod_spec, "volumes": [*kept, *added]}


def _fixed(resource: Resource, spec: Json, was: Json) -> Iterator[FieldError]:
    """The selector never changes: it would orphan the pods that it no longer finds."""
    fields = ["selector"] if resource.plural != "replicationcontrollers" else []
    if resource.plural == "jobs":
        fields += ["template", "completions"] if not was.get("suspend") else ["completions"]
    for field in fields:
        if spec.get(field) != was.get(field):
            yield invalid_value(f"spec.{field}", spec.get(field), "field is immutable")
