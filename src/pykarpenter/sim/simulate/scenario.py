"""Scenario files: what is in the cluster at the start, what happens when, and for how long.

Snapshots and plain manifests are scenarios too: their objects are there from the start and nothing else happens.
Every problem is a ManifestError with file, field and remedy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from pykarpenter.api import kinds
from pykarpenter.api.duration import InvalidDuration, parse_duration
from pykarpenter.api.manifests import Document, ManifestError
from pykarpenter.cloud.catalog import Catalog, CatalogError, parse_entries, read_catalog
from pykarpenter.kube.contract import Json
from pykarpenter.sim.faults.stories import Step
from pykarpenter.sim.simulate.fault_steps import read_fault
from pykarpenter.sim.simulate.objects import GROUP, fit_for_the_cloud, plain_objects, with_storage_classes

DEFAULT_DURATION_S = 3600.0
SNAPSHOT = "ClusterSnapshot"

_API_VERSION = f"{GROUP}/v1alpha1"
_FIELDS = ("duration", "catalog", "pricePeriod", "objects", "steps", "waves")
_STEP_FIELDS = ("apply", "scale", "restart", "delete", "fault")
_PARTS = {
    "scale": ("deployment", "namespace", "replicas"),
    "restart": ("deployment", "namespace"),
    "delete": ("kind", "name", "namespace"),
}
_WAVE_FIELDS = ("deployment", "namespace", "low", "high", "period", "peak", "every")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Ready to run: manifests for the start, steps in order of time, seconds to run."""

    name: str
    duration_s: float
    objects: tuple[Json, ...]
    steps: tuple[Step, ...]
    catalog: Catalog
    price_period_s: float | None = None
    # Objects of plain manifests that the embedded cluster has no use for, by kind.
    skipped: tuple[tuple[str, int], ...] = ()
    warnings: tuple[str, ...] = ()


def read_scenario(documents: Iterable[Document], *, catalog: str = "") -> Scenario:
    """The scenario of an input; raises ManifestError. `catalog` overrides what the input names."""
    listed = list(documents)
    if not listed:
        raise ManifestError("the input holds no objects: give a scenario, a snapshot or manifests")
    broken = next((d for d in listed if d.kind == "List"), None)
    if broken is not None:
        raise broken.error("items", broken.data.get("items"), "give a list of objects")
    scenarios = [d for d in listed if (d.group, d.kind) == (GROUP, "Scenario")]
    if len(scenarios) > 1:
        raise scenarios[1].error("kind", "Scenario", "only one scenario can run at a time; remove this one")
    snapshot = next((d for d in listed if (d.group, d.kind) == (GROUP, SNAPSHOT)), None)
    others = [d for d in listed if d.kind not in ("Scenario", SNAPSHOT)]
    served = [d for d in others if (d.group, d.kind) in kinds.BY_KIND and not d.kind.endswith("NodeClass")]
    objects = plain_objects([(_object(d, "", d.data), d.data) for d in served])
    left_out = Counter(d.kind for d in others if d not in served and not d.kind.endswith("NodeClass"))
    skipped = tuple(sorted(left_out.items()))
    if scenarios:
        found = _from_document(scenarios[0], objects, catalog)
    elif not served:
        remedy = "holds no objects that the embedded cluster serves; give a scenario, a snapshot or manifests"
        raise listed[0].error("kind", listed[0].kind, remedy)
    else:
        name = snapshot.name if snapshot is not None and snapshot.name else others[0].source
        found = Scenario(name, DEFAULT_DURATION_S, objects, (), _catalog(snapshot, catalog))
    applied = [step.args["body"] for step in found.steps if step.action == "apply"]
    added, warnings = with_storage_classes(found.objects, applied)
    return replace(found, objects=(*added, *found.objects), skipped=skipped, warnings=tuple(warnings))


def _from_document(document: Document, objects: tuple[Json, ...], catalog: str) -> Scenario:
    if document.data.get("apiVersion") != _API_VERSION:
        raise document.error("apiVersion", document.data.get("apiVersion"), f"is not known; write {_API_VERSION}")
    spec = document.data.get("spec")
    if not isinstance(spec, Mapping):
        raise document.error("spec", spec, f"a scenario needs a spec with {', '.join(_FIELDS)}")
    for field in spec:
        if field not in _FIELDS:
            raise document.error(f"spec.{field}", spec[field], f"unknown field; known are {', '.join(_FIELDS)}")
    duration = _duration(document, "spec.duration", spec.get("duration"))
    listed = _list(document, "spec.objects", spec.get("objects"))
    inline = [_object(document, f"spec.objects[{i}]", body) for i, body in enumerate(listed)]
    raw_steps = enumerate(_list(document, "spec.steps", spec.get("steps")))
    steps = [s for i, raw in raw_steps for s in _repeated(document, i, raw, duration)]
    for i, raw in enumerate(_list(document, "spec.waves", spec.get("waves"))):
        steps.extend(_wave(document, f"spec.waves[{i}]", raw, duration))
    period = spec.get("pricePeriod")
    return Scenario(
        document.name or document.source,
        duration,
        (*objects, *inline),
        tuple(sorted(steps, key=lambda step: step.at)),
        _named_catalog(document, catalog or str(spec.get("catalog", "demo"))),
        _duration(document, "spec.pricePeriod", period) if period is not None else None,
    )


def _duration(document: Document, field: str, value: object) -> float:
    try:
        seconds = parse_duration(str(value)) if value is not None else None
    except InvalidDuration:
        seconds = None
    if seconds is None or seconds <= 0:
        raise document.error(field, value, "give a positive duration such as 90m or 24h")
    return seconds


def _list(document: Document, field: str, value: object) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise document.error(field, value, "give a list")
    return value


def _object(document: Document, field: str, body: object) -> Json:
    if not isinstance(body, Mapping):
        raise document.error(field, body, "give an object with apiVersion, kind and metadata")
    group = str(body.get("apiVersion", "")).rpartition("/")[0]
    field = f"{field}." if field else ""
    if (group, str(body.get("kind", ""))) not in kinds.BY_KIND:
        raise document.error(f"{field}kind", body.get("kind"), "this kind is not served by the embedded cluster")
    served = kinds.BY_KIND[(group, str(body["kind"]))].api_version
    if body["apiVersion"] != served:
        raise document.error(f"{field}apiVersion", body["apiVersion"], f"is not served; write {served}")
    meta = body.get("metadata")
    if not isinstance(meta, Mapping) or not (meta.get("name") or meta.get("generateName")):
        raise document.error(f"{field}metadata.name", None, "every object needs a name")
    return fit_for_the_cloud(dict(body))


def _repeated(document: Document, index: int, raw: object, duration: float) -> list[Step]:
    """A step, and with `every` the same step again and again until the end."""
    steps = _step(document, index, raw)
    every = raw.get("every") if isinstance(raw, Mapping) else None
    if every is None:
        return steps
    period = _duration(document, f"spec.steps[{index}].every", every)
    times = int(max(0.0, duration - steps[0].at) / period) + 1
    return [Step(step.at + number * period, step.action, step.args) for step in steps for number in range(times)]


def _step(document: Document, index: int, raw: object) -> list[Step]:
    field = f"spec.steps[{index}]"
    if not isinstance(raw, Mapping):
        raise document.error(field, raw, f"give an object with at and one of {', '.join(_STEP_FIELDS)}")
    at = 0.0 if str(raw.get("at")) in ("0", "0s") else _duration(document, f"{field}.at", raw.get("at"))
    what = [name for name in raw if name not in ("at", "every", "with")]
    if len(what) != 1 or what[0] not in _STEP_FIELDS:
        raise document.error(field, what, f"a step does exactly one of {', '.join(_STEP_FIELDS)}")
    value = raw[what[0]]
    place = f"{field}.{what[0]}"
    if "with" in raw and what[0] != "fault":
        raise document.error(f"{field}.with", raw["with"], "only a fault takes arguments; remove it")
    if what[0] == "apply":
        return [Step(at, "apply", {"body": _object(document, place, value)})]
    if what[0] == "fault":
        return [read_fault(document, place, at, value, raw.get("with") or {})]
    if not isinstance(value, Mapping):
        raise document.error(place, value, "give an object")
    for name in value:
        if name not in _PARTS[what[0]]:
            known = ", ".join(_PARTS[what[0]])
            raise document.error(f"{place}.{name}", value[name], f"unknown field; known are {known}")
    return [_change(document, place, at, what[0], value)]


def _change(document: Document, place: str, at: float, what: str, value: Mapping[str, Any]) -> Step:
    """A step that changes what is there already."""
    if what == "scale":
        replicas = value.get("replicas")
        if not value.get("deployment") or not _is_count(replicas):
            raise document.error(place, value, "give deployment and replicas, a number of 0 or more")
        return _scale(at, value, replicas)
    if what == "restart":
        if not value.get("deployment"):
            raise document.error(place, value, "give the deployment whose pods are replaced one after the other")
        return Step(at, "restart", {"name": value["deployment"], "namespace": value.get("namespace", "default")})
    if not value.get("kind") or not value.get("name"):
        raise document.error(place, value, "give kind and name of what to delete")
    return Step(at, "delete", {k: str(value[k]) for k in _PARTS["delete"] if k in value})


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _scale(at: float, value: Mapping[str, Any], replicas: int) -> Step:
    where = {"name": str(value["deployment"]), "namespace": str(value.get("namespace", "default"))}
    return Step(at, "scale_to", {**where, "replicas": replicas})


def _wave(document: Document, field: str, raw: object, duration: float) -> list[Step]:
    """A Deployment that follows the day: a cosine between `low` and `high` with its top at `peak`."""
    if not isinstance(raw, Mapping):
        raise document.error(field, raw, f"give an object with {', '.join(_WAVE_FIELDS)}")
    for name in raw:
        if name not in _WAVE_FIELDS:
            raise document.error(f"{field}.{name}", raw[name], f"unknown field; known are {', '.join(_WAVE_FIELDS)}")
    low, high = raw.get("low"), raw.get("high")
    if not raw.get("deployment") or not _is_count(low) or not _is_count(high) or low > high:
        raise document.error(field, dict(raw), "give deployment, low and high with 0 <= low <= high")
    period = _duration(document, f"{field}.period", raw.get("period", "24h"))
    peak = _duration(document, f"{field}.peak", raw.get("peak", "14h"))
    every = _duration(document, f"{field}.every", raw.get("every", "10m"))
    steps: list[Step] = []
    at = every
    while at < duration:
        height = (1.0 + math.cos(2.0 * math.pi * (at - peak) / period)) / 2.0
        steps.append(_scale(at, raw, round(low + (high - low) * height)))
        at += every
    return steps


def _catalog(snapshot: Document | None, name: str) -> Catalog:
    entries = snapshot.data.get("instanceTypes") if snapshot is not None else None
    if snapshot is not None and entries and not name:
        try:
            return parse_entries(entries, snapshot.source)
        except CatalogError as error:
            raise ManifestError(f"{snapshot.source}: instanceTypes: {error}") from error
    try:
        return read_catalog(name or "demo")
    except CatalogError as error:
        raise ManifestError(str(error)) from error


def _named_catalog(document: Document, name: str) -> Catalog:
    try:
        return read_catalog(name)
    except CatalogError as error:
        raise document.error("spec.catalog", name, str(error)) from error
