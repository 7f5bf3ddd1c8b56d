"""Claims, classes, slices and types with devices, short to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pykarpenter.api import labels
from pykarpenter.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice, ResourceSliceSpec
from pykarpenter.api.pods import Pod
from pykarpenter.core.devices.consumption import InUse
from pykarpenter.core.devices.demand import DemandReader
from pykarpenter.core.devices.pools import PROMISED, gather
from pykarpenter.core.devices.search import MAX_TRIES, Candidate, Matcher, Search, Supply
from pykarpenter.core.instance_types import InstanceType
from pykarpenter.core.packing import pack
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.plans import LaunchPlan
from pykarpenter.core.snapshot import DeviceObjects
from tests.support.builders import make_pod, make_snapshot, make_type

DRIVER = "gpu.example.com"
ON = PackingSettings(ignore_dra_requests=False)


def device(name: str, *, counters: Mapping[str, Any] | None = None, **attributes: Any) -> dict[str, Any]:
    """A device; strings, numbers and truths become attributes, `fields` is added as it is."""
    fields = attributes.pop("fields", {})
    kinds = {bool: "bool", int: "int", str: "string"}
    made: dict[str, Any] = {
        "name": name,
        "attributes": {key: {kinds[type(value)]: value} for key, value in attributes.items()},
        **fields,
    }
    if counters is not None:
        made["consumesCounters"] = [{"counterSet": "set", "counters": {k: {"value": v} for k, v in counters.items()}}]
    return made


def spec(*devices: Mapping[str, Any] | str, driver: str = DRIVER, pool: str = "", **fields: Any) -> ResourceSliceSpec:
    listed = [device(item) if isinstance(item, str) else item for item in devices]
    described = {"name": pool, "generation": fields.pop("generation", 1), "resourceSliceCount": fields.pop("of", 1)}
    return msgspec.convert({"driver": driver, "pool": described, "devices": listed, **fields}, ResourceSliceSpec)


def counter_slice(pool: str = "", *, driver: str = DRIVER, of: int = 1, **amounts: str) -> ResourceSliceSpec:
    shared = [{"name": "set", "counters": {key: {"value": value} for key, value in amounts.items()}}]
    return spec(driver=driver, pool=pool, of=of, sharedCounters=shared)


def published(item: ResourceSliceSpec, name: str = "slice", owner: str = "") -> ResourceSlice:
    meta: dict[str, Any] = {"name": name}
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": owner, "uid": owner}]
    return msgspec.convert({"metadata": meta, "spec": msgspec.to_builtins(item)}, ResourceSlice)


def on_node(name: str, *devices: Mapping[str, Any] | str, **fields: Any) -> ResourceSlice:
    """What a driver on a node publishes."""
    made = spec(*devices, pool=fields.pop("pool", name), nodeName=name, **fields)
    return published(made, f"{name}-{made.driver}", name)


def in_zone(zone: str, *devices: Mapping[str, Any] | str, pool: str = "", **fields: Any) -> ResourceSlice:
    """Devices that every machine of a zone can reach."""
    term = {"matchExpressions": [{"key": labels.ZONE, "operator": "In", "values": [zone]}]}
    made = spec(*devices, pool=pool or zone, nodeSelector={"nodeSelectorTerms": [term]}, **fields)
    return published(made, f"shared-{pool or zone}")


def request(name: str = "gpu", count: int = 1, *cel: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": option(count, *cel, **fields)}


def option(count: int = 1, *cel: str, device_class: str = "gpu", **fields: Any) -> dict[str, Any]:
    mode = {"count": count} if count else {"allocationMode": "All"}
    return {"deviceClassName": device_class, "selectors": [{"cel": {"expression": e}} for e in cel], **mode, **fields}


def first_of(name: str, **options: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "firstAvailable": [{"name": key, **item} for key, item in options.items()]}


def match(attribute: str, *requests: str) -> dict[str, Any]:
    return {"matchAttribute": attribute, "requests": list(requests)}


def claim(
    name: str,
    *requests: Mapping[str, Any],
    constraints: Sequence[Mapping[str, Any]] = (),
    results: Sequence[Mapping[str, Any]] | None = None,
    selector: Mapping[str, Any] | None = None,
    users: Sequence[str] = (),
) -> ResourceClaim:
    """A claim; with results it is allocated, with users reserved for pods of these names."""
    status: dict[str, Any] = {
        "reservedFor": [{"resource": "pods", "name": u, "uid": f"uid-default-{u}"} for u in users]
    }
    if results is not None:
        status["allocation"] = {"devices": {"results": list(results)}}
        if selector is not None:
            status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [selector]}
    wanted = list(requests) or [request()]
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": wanted, "constraints": list(constraints)}},
            "status": status,
        },
        ResourceClaim,
    )


def result(pool: str, name: str, driver: str = DRIVER, **fields: Any) -> dict[str, Any]:
    return {"request": "gpu", "driver": driver, "pool": pool, "device": name, **fields}


def template(name: str, *requests: Mapping[str, Any]) -> ResourceClaimTemplate:
    body = {"devices": {"requests": list(requests) or [request()]}}
    meta = {"name": name, "namespace": "default"}
    return msgspec.convert({"metadata": meta, "spec": {"spec": body}}, ResourceClaimTemplate)


def device_class(name: str = "gpu", *cel: str) -> DeviceClass:
    listed = [{"cel": {"expression": e}} for e in cel]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": listed}}, DeviceClass)


def objects(
    claims: Sequence[ResourceClaim] = (),
    slices: Sequence[ResourceSlice] = (),
    classes: Sequence[DeviceClass] | None = None,
    templates: Sequence[ResourceClaimTemplate] = (),
) -> DeviceObjects:
    known = [device_class()] if classes is None else classes
    return DeviceObjects(
        claims={item.key: item for item in claims},
        templates={item.key: item for item in templates},
        classes={item.name: item for item in known},
        slices=tuple(slices),
    )


def user(name: str, *claims: str, **fields: Any) -> Pod:
    """A pending pod that uses claims by name."""
    listed = [{"name": f"c{i}", "resourceClaimName": key} for i, key in enumerate(claims)]
    pod = make_pod(name, **fields)
    entries = msgspec.convert({"resourceClaims": listed}, type(pod.spec)).resource_claims
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resource_claims=entries))


def gpu_type(name: str, *slices: ResourceSliceSpec, **fields: Any) -> InstanceType:
    return make_type(name, dynamic_resources=tuple(slices), **fields)


def plan(
    pods: Sequence[Pod],
    found: DeviceObjects,
    types: Sequence[InstanceType] = (),
    settings: PackingSettings = ON,
    **fields: Any,
) -> LaunchPlan:
    listed = list(types) or [make_type("plain", price=0.1), gpu_type("gpu", spec("gpu-0", "gpu-1"), price=2.0)]
    return pack(make_snapshot(pods, types=listed, devices=found, **fields), settings)


def searched(
    slices: Sequence[ResourceSliceSpec],
    *claims: ResourceClaim,
    limit: int = MAX_TRIES,
    classes: Sequence[DeviceClass] | None = None,
    supply: Supply | None = None,
) -> list[tuple[str, str, str]] | str:
    """Claim, request and device of every pick on one machine, or the reason."""
    pools = gather(slices, PROMISED)
    known = supply or Supply(
        [Candidate(item) for pool in pools for item in pool.devices],
        {key: amount for pool in pools for key, amount in pool.counters.items()},
        [pool for pool in pools if pool.problem],
    )
    reader = DemandReader(objects(claims, classes=classes))
    demand = reader.demand(user("pod", *(item.name for item in claims)))
    found = Search[bool](known, InUse(), Matcher(), lambda state, _: state, limit).run(demand, True)
    if isinstance(found, str):
        return found
    return [(demand[pick.claim].key.partition("/")[2], pick.request, pick.device.id.name) for pick in found[0]]
