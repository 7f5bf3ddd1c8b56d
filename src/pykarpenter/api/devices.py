"""Dynamic resource allocation, `resource.k8s.io/v1`: claims, templates, classes and slices."""

from __future__ import annotations

import msgspec

from pykarpenter.api.meta import Condition, Object, Wire
from pykarpenter.api.pods import NodeSelector


class CELDeviceSelector(Wire):
    expression: str = ""


class DeviceSelector(Wire):
    cel: CELDeviceSelector | None = None


class CapacityRequirements(Wire):
    requests: dict[str, str | int | float] = {}


class ExactDeviceRequest(Wire):
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = "ExactCount"
    count: int | None = None
    admin_access: bool | None = None
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Wire):
    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = "ExactCount"
    count: int | None = None
    capacity: CapacityRequirements | None = None


class DeviceRequest(Wire):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(Wire):
    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Wire):
    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []


class ResourceClaimSpec(Wire):
    devices: DeviceClaim = DeviceClaim()


class DeviceAllocationResult(Wire):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    consumed_capacity: dict[str, str | int | float] = {}


class AllocatedDevices(Wire):
    results: list[DeviceAllocationResult] = []


class AllocationResult(Wire):
    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class ResourceClaimConsumer(Wire):
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Wire):
    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumer] = []
    conditions: list[Condition] = []


class ResourceClaim(Object):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Wire):
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object):
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceClassSpec(Wire):
    selectors: list[DeviceSelector] = []


class DeviceClass(Object):
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(Wire):
    int_value: int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)


class CapacityRequestRange(Wire):
    min: str | int | float | None = None
    max: str | int | float | None = None
    step: str | int | float | None = None


class CapacityRequestPolicy(Wire):
    default: str | int | float | None = None
    valid_values: list[str | int | float] = []
    valid_range: CapacityRequestRange | None = None


class DeviceCapacity(Wire):
    value: str | int | float = 0
    request_policy: CapacityRequestPolicy | None = None


class Counter(Wire):
    value: str | int | float = 0


class CounterSet(Wire):
    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Wire):
    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Wire):
    key: str = ""
    value: str = ""
    effect: str = ""


class Device(Wire):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[DeviceCounterConsumption] = []
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    allow_multiple_allocations: bool | None = None
    taints: list[DeviceTaint] = []


class ResourcePool(Wire):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(Wire):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []


class ResourceSlice(Object):
    spec: ResourceSliceSpec = ResourceSliceSpec()
