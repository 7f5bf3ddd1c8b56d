"""What a pod asks for by ResourceClaim: its claims found, read and checked before any machine is looked at.

A claim that asks for what is not supported is refused here with the reason, so that the search only meets claims it
can serve. A claim that is not there yet is made from its template; without either the pod waits for the next round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pykarpenter.api.devices import (
    CapacityRequirements,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumer,
    ResourceClaimSpec,
)
from pykarpenter.api.labels import DEFAULT_RULES, LabelRules
from pykarpenter.api.pods import Pod
from pykarpenter.api.quantity import parse_quantity
from pykarpenter.core.devices.placing import ANYWHERE, Term, terms_of
from pykarpenter.core.devices.pools import Amount
from pykarpenter.core.devices.selectors import Selector, SelectorError, compiled
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.core.snapshot import DeviceObjects

# Kubernetes' own limit on the results of one claim.
MAX_DEVICES = 32
# Devices of all claims of a pod together: the search goes one step deeper for each.
MAX_DEVICES_PER_POD = 256
ALL = "All"
EXACT_COUNT = "ExactCount"


class DemandError(ValueError):
    """A pod whose claims cannot be served as they are."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(why, message)


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One way to serve a request: the request itself, or one of its alternatives."""

    name: str
    device_class: str
    selectors: tuple[Selector, ...]
    count: int
    takes_all: bool
    capacity: Mapping[str, Amount]

    @property
    def least(self) -> int:
        return 1 if self.takes_all else self.count


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    name: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Devices of these requests (all when empty) must agree in the attribute."""

    attribute: str
    requests: frozenset[str]

    def concerns(self, option: str) -> bool:
        return not self.requests or option in self.requests or option.partition("/")[0] in self.requests


@dataclass(frozen=True, slots=True, eq=False)
class ClaimDemand:
    """One claim, read."""

    key: str
    requests: tuple[Request, ...]
    matches: tuple[Match, ...]
    # Where the devices that the claim has can be reached; None while it has none.
    reach: tuple[Term, ...] | None = None
    reserved_for: tuple[ResourceClaimConsumer, ...] = ()


DeviceDemand = tuple[ClaimDemand, ...]


class DemandReader:
    """Reads the claims of pods; claims that ask for the same share one reading."""

    def __init__(self, objects: DeviceObjects, rules: LabelRules = DEFAULT_RULES) -> None:
        self._objects = objects
        self._rules = rules
        self._read: dict[bytes, tuple[tuple[Request, ...], tuple[Match, ...]]] = {}
        self._encode = msgspec.msgpack.Encoder().encode

    def demand(self, pod: Pod) -> DeviceDemand:
        """The pod's claims; raises DemandError with the reason why it cannot be served."""
        claims = [claim for claim in self._claims(pod) if claim is not None]
        listed = {entry.name for entry in pod.spec.resource_claims}
        for container in (*pod.spec.containers, *pod.spec.init_containers):
            for used in container.resources.claims:
                if used.name not in listed:
                    message = f"container {container.name!r} uses claim {used.name!r}, which spec.resourceClaims lacks"
                    raise DemandError(Why.DEVICES, message)
        found = tuple({claim.key: self._claim(claim) for claim in claims}.values())
        total = sum(_least(request) for claim in found for request in claim.requests)
        if total > MAX_DEVICES_PER_POD:
            message = f"the pod asks for {total} devices; at most {MAX_DEVICES_PER_POD} are searched for"
            raise DemandError(Why.DRA_UNSUPPORTED, message)
        return found

    def _claims(self, pod: Pod) -> Iterable[ResourceClaim | None]:
        namespace = pod.metadata.namespace
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_name is not None:
                yield self._existing(namespace, entry.resource_claim_name)
            elif entry.name in made:
                # Without a name Kubernetes decided that this pod needs no claim here.
                name = made[entry.name]
                yield self._existing(namespace, name) if name else None
            else:
                yield self._from_template(pod, entry.name, entry.resource_claim_template_name or "")

    def _existing(self, namespace: str, name: str) -> ResourceClaim:
        found = self._objects.claims.get(f"{namespace}/{name}")
        if found is None:
            raise DemandError(Why.DEVICES, f"resourceclaim {namespace}/{name} does not exist yet")
        if found.is_deleting:
            raise DemandError(Why.DEVICES, f"resourceclaim {namespace}/{name} is being deleted")
        return found

    def _from_template(self, pod: Pod, entry: str, name: str) -> ResourceClaim:
        namespace = pod.metadata.namespace
        template = self._objects.templates.get(f"{namespace}/{name}")
        if template is None:
            message = f"resource claim {entry!r}: neither its claim nor resourceclaimtemplate {namespace}/{name} exists"
            raise DemandError(Why.DEVICES, message)
        meta = msgspec.structs.replace(template.metadata, name=f"{pod.metadata.name}-{entry}", namespace=namespace)
        return ResourceClaim(metadata=meta, spec=template.spec.spec)

    def _claim(self, claim: ResourceClaim) -> ClaimDemand:
        allocation = claim.status.allocation
        selector = allocation.node_selector if allocation is not None else None
        try:
            spec = self._encode(claim.spec)
            reach = ANYWHERE if selector is None else terms_of(selector, self._rules)
        except (ValueError, OverflowError) as error:
            raise DemandError(Why.DEVICES, f"resourceclaim {claim.key}: {error}") from error
        found = self._read.get(spec)
        if found is None:
            found = self._read[spec] = self._spec(claim.key, claim.spec)
        users = tuple(claim.status.reserved_for)
        return ClaimDemand(claim.key, *found, reach if allocation is not None else None, users)

    def _spec(self, key: str, spec: ResourceClaimSpec) -> tuple[tuple[Request, ...], tuple[Match, ...]]:
        try:
            requests = tuple(self._request(item) for item in spec.devices.requests)
            matches = tuple(_match(item) for item in spec.devices.constraints)
        except SelectorError as error:
            raise DemandError(Why.DRA_UNSUPPORTED, f"resourceclaim {key}: {error}") from error
        except DemandError as error:
            raise DemandError(error.refusal.why, f"resourceclaim {key}: {error}") from error
        except ValueError as error:
            raise DemandError(Why.DEVICES, f"resourceclaim {key}: {error}") from error
        least = sum(_least(request) for request in requests)
        if least > MAX_DEVICES:
            message = f"resourceclaim {key}: asks for at least {least} devices; a claim can have {MAX_DEVICES}"
            raise DemandError(Why.DEVICES, message)
        return requests, matches

    def _request(self, item: DeviceRequest) -> Request:
        if item.exactly is not None:
            if item.exactly.admin_access:
                raise _unsupported(item.name, "adminAccess is not supported")
            return Request(item.name, (self._option(item.name, item.exactly),))
        if not item.first_available:
            raise _unsupported(item.name, "it is neither of kind exactly nor of kind firstAvailable")
        return Request(item.name, tuple(self._option(f"{item.name}/{sub.name}", sub) for sub in item.first_available))

    def _option(self, name: str, item: ExactDeviceRequest | DeviceSubRequest) -> Option:
        if item.allocation_mode not in (ALL, EXACT_COUNT):
            message = f"allocationMode {item.allocation_mode!r} is not supported; use {EXACT_COUNT} or {ALL}"
            raise _unsupported(name, message)
        found = self._objects.classes.get(item.device_class_name)
        if found is None:
            raise DemandError(Why.DEVICES, f"request {name!r}: deviceclass {item.device_class_name!r} does not exist")
        count = 1 if item.count is None else item.count
        if item.allocation_mode == EXACT_COUNT and count < 1:
            raise DemandError(Why.DEVICES, f"request {name!r}: count {count}: must be at least 1")
        return Option(
            name=name,
            device_class=found.name,
            selectors=(*_selectors(name, found.spec.selectors), *_selectors(name, item.selectors)),
            count=count,
            takes_all=item.allocation_mode == ALL,
            capacity=_amounts(item.capacity),
        )


def _selectors(request: str, items: Sequence[DeviceSelector]) -> list[Selector]:
    found = []
    for item in items:
        if item.cel is None:
            raise _unsupported(request, "only CEL selectors are supported")
        found.append(compiled(item.cel.expression))
    return found


def _amounts(capacity: CapacityRequirements | None) -> dict[str, Amount]:
    return {name: parse_quantity(value) for name, value in capacity.requests.items()} if capacity is not None else {}


def _match(item: DeviceConstraint) -> Match:
    if item.match_attribute is None:
        kind = "distinctAttribute" if item.distinct_attribute is not None else "a constraint without matchAttribute"
        raise DemandError(Why.DRA_UNSUPPORTED, f"{kind} is not supported; use matchAttribute")
    return Match(item.match_attribute, frozenset(item.requests))


def _least(request: Request) -> int:
    return min(option.least for option in request.options)


def _unsupported(request: str, message: str) -> DemandError:
    return DemandError(Why.DRA_UNSUPPORTED, f"request {request!r}: {message}")
