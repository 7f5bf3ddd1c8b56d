"""Pods to equivalence classes: pods that every rule in play treats alike are placed together.

Two pods share a class when spec, namespace, container status and those labels agree that any selector in play reads.
Ingestion is a dictionary lookup per pod; everything else is done once per class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import numpy as np

from pykarpenter.api.pods import Pod, PodSpec, TopologySpreadConstraint
from pykarpenter.core.devices.demand import DemandError, DemandReader, DeviceDemand
from pykarpenter.core.interning import Ints
from pykarpenter.core.packing.daemons import uses_devices
from pykarpenter.core.packing.eligibility import spec_problem, volume_problem
from pykarpenter.core.packing.node_table import RequestMemo
from pykarpenter.core.packing.rungs import Rung
from pykarpenter.core.packing.shapes import Wishes, projected, selector_keys, wishes_of
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.ports import HostPort, host_ports
from pykarpenter.core.reasons import Refusal, Why
from pykarpenter.core.resources import Resources
from pykarpenter.core.snapshot import ClusterSnapshot
from pykarpenter.core.topology.groups import Group
from pykarpenter.core.volumes import VolumeDemand, VolumeLookupError, volume_demand

DefaultSpread = Callable[[Pod], tuple[TopologySpreadConstraint, ...]]
NOT_URGENT: Mapping[str, int] = {}


@dataclass(slots=True, eq=False)
class PodClass:
    """Identical pods, in the order they are placed."""

    pods: list[Pod]
    wishes: Wishes
    requests: Resources
    ports: tuple[HostPort, ...] = ()
    demand: VolumeDemand = field(default_factory=VolumeDemand)
    # Resource claims; a class with any has one pod.
    devices: DeviceDemand = ()
    vector: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # Position in the queue, and how many pods have a place.
    index: int = 0
    placed: int = 0
    rungs: list[Rung] = field(default_factory=list)
    # Groups that count this class's pods wherever they go, and those that record where its anti-affinity is.
    counted_by: list[Group] = field(default_factory=list)
    guards: list[Group] = field(default_factory=list)
    # Pods that could as well stay where they are; they may not use machines that are closed to such pods.
    moving: bool = False
    # Why the rest has no place yet, when it waits for reserved capacity.
    deferred: str = ""

    @property
    def sample(self) -> Pod:
        return self.pods[0]

    @property
    def left(self) -> int:
        return len(self.pods) - self.placed

    @property
    def namespace(self) -> str:
        return self.pods[0].metadata.namespace

    @property
    def labels(self) -> Mapping[str, str]:
        return self.pods[0].metadata.labels


@dataclass(slots=True)
class _SpecFacts:
    spec: PodSpec
    wishes: Wishes
    problem: Refusal | None
    devices: bool
    own_claims: bool


@dataclass(slots=True)
class Batch:
    """The classes of one decision in queue order, and the pods it does not try."""

    classes: list[PodClass]
    ignored: dict[str, Refusal]
    refused: dict[str, Refusal]


class ClassBuilder:
    """Builds the classes of one decision."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        settings: PackingSettings,
        memo: RequestMemo,
        default_spread: DefaultSpread | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._memo = memo
        self._default_spread = default_spread
        self._encode = msgspec.msgpack.Encoder().encode
        self._specs: dict[bytes, _SpecFacts] = {}
        self._by_identity: dict[int, _SpecFacts] = {}
        self._reader = DemandReader(snapshot.devices, settings.label_rules)
        self._demands: dict[str, DeviceDemand] = {}
        self.ignored: dict[str, Refusal] = {}
        self.refused: dict[str, Refusal] = {}

    def build(
        self,
        pending: Iterable[Pod],
        leaving: Sequence[Pod],
        other_keys: Iterable[str],
        moving: Sequence[Pod] = (),
        singly: bool = False,
        urgency: Mapping[str, int] = NOT_URGENT,
    ) -> Batch:
        """`other_keys` are label keys that selectors outside the batch read; `singly` gives each pod its own class.

        Classes with urgent pods go before all others.
        """
        accepted: list[tuple[Pod, _SpecFacts]] = []
        going: list[tuple[Pod, _SpecFacts]] = []
        for pod in pending:
            facts = self._facts(pod.spec)
            if (facts.problem is None and not facts.devices and not pod.spec.volumes) or self._accepts(pod, facts):
                accepted.append((pod, facts))
        for pod in leaving:
            facts = self._facts(pod.spec)
            if self._accepts_leaving(pod, facts):
                accepted.append((pod, facts))
        for pod in moving:
            facts = self._facts(pod.spec)
            if self._accepts_leaving(pod, facts):
                going.append((pod, facts))
        keys = set(other_keys)
        for facts in self._specs.values():
            keys |= selector_keys(facts.wishes)
        ordered = tuple(sorted(keys))
        classes = [made for members in self._grouped(accepted, ordered) for made in self._make(*members)]
        for members in self._grouped(going, ordered):
            for made in self._make(*members):
                made.moving = True
                classes.append(made)
        if singly:
            classes = [replace(item, pods=[pod]) for item in classes for pod in item.pods]
        return Batch(self._queue(classes, urgency), self.ignored, self.refused)

    def _facts(self, spec: PodSpec) -> _SpecFacts:
        identity = id(spec)
        found = self._by_identity.get(identity)
        if found is None:
            plain = spec
            if spec.node_name or spec.volumes:
                # Where the pod ran and volumes injected under random names make no difference.
                kept = [v for v in spec.volumes if v.persistent_volume_claim is not None or v.ephemeral is not None]
                plain = msgspec.structs.replace(spec, node_name="", volumes=kept)
            key = self._encode(plain)
            found = self._specs.get(key)
            if found is None:
                spec = plain
                found = _SpecFacts(
                    spec,
                    wishes_of(spec),
                    spec_problem(spec, self._settings),
                    uses_devices(spec),
                    any(volume.ephemeral is not None for volume in spec.volumes),
                )
                self._specs[key] = found
            self._by_identity[identity] = found
        return found

    def _accepts(self, pod: Pod, facts: _SpecFacts) -> bool:
        problem = facts.problem or volume_problem(pod, self._snapshot.volumes, self._settings)
        if problem is not None:
            self.ignored[pod.key] = problem
            return False
        return self._accepts_devices(pod, facts)

    def _accepts_leaving(self, pod: Pod, facts: _SpecFacts) -> bool:
        # Pods that already run were accepted once; only what cannot be read at all is refused.
        if facts.problem is not None and facts.problem.why is Why.INVALID_POD and not _readable(facts, self._settings):
            self.refused[pod.key] = facts.problem
            return False
        return self._accepts_devices(pod, facts)

    def _accepts_devices(self, pod: Pod, facts: _SpecFacts) -> bool:
        if not facts.devices:
            return True
        if not self._settings.ignore_dra_requests:
            try:
                self._demands[pod.key] = self._reader.demand(pod)
            except DemandError as error:
                self.refused[pod.key] = error.refusal
            return pod.key in self._demands
        message = "the pod asks for devices by ResourceClaim, which is not enabled; set IGNORE_DRA_REQUESTS=false"
        self.refused[pod.key] = Refusal(Why.DRA_UNSUPPORTED, message)
        return False

    def _grouped(
        self, accepted: list[tuple[Pod, _SpecFacts]], keys: tuple[str, ...]
    ) -> list[tuple[list[Pod], _SpecFacts, tuple[TopologySpreadConstraint, ...]]]:
        groups: dict[tuple[object, ...], tuple[list[Pod], _SpecFacts, tuple[TopologySpreadConstraint, ...]]] = {}
        project = partial(projected, keys=keys)
        for pod, facts in accepted:
            meta, status = pod.metadata, pod.status
            extra: tuple[object, ...] = ()
            spread: tuple[TopologySpreadConstraint, ...] = ()
            if status.container_statuses:
                extra = (self._encode([status.container_statuses, status.init_container_statuses]),)
            if facts.own_claims or facts.devices:
                extra += (meta.name,)
            if self._default_spread is not None and not facts.wishes.spread:
                spread = self._default_spread(pod)
                extra += (self._encode(spread), tuple(sorted(meta.labels.items())) if spread else ())
            key = (id(facts), meta.namespace, project(meta.labels), extra)
            found = groups.get(key)
            if found is None:
                groups[key] = ([pod], facts, spread)
            else:
                found[0].append(pod)
        return list(groups.values())

    def _make(self, pods: list[Pod], facts: _SpecFacts, spread: tuple[TopologySpreadConstraint, ...]) -> list[PodClass]:
        wishes = replace(facts.wishes, spread=spread) if spread else facts.wishes
        sample = pods[0]
        made = PodClass(sorted(pods, key=_age), wishes, self._memo.requests(sample), host_ports(facts.spec))
        if facts.devices:
            made.devices = self._demands[sample.key]
        if facts.spec.volumes:
            try:
                made.demand = volume_demand(sample, self._snapshot.volumes, self._settings.label_rules)
            except VolumeLookupError as error:
                refusal = Refusal(Why.VOLUME_UNUSABLE, str(error))
                self.refused.update((pod.key, refusal) for pod in pods)
                return []
        return [made]

    @staticmethod
    def _queue(classes: list[PodClass], urgency: Mapping[str, int]) -> list[PodClass]:
        """Largest cpu first, then memory, then the oldest pod."""
        ordered = sorted(
            classes, key=lambda c: (-c.requests.get("cpu", 0), -c.requests.get("memory", 0), *_age(c.sample))
        )
        if urgency:
            ordered.sort(key=lambda c: -max(urgency.get(pod.key, 0) for pod in c.pods))
        for index, item in enumerate(ordered):
            item.index = index
        return ordered


def _age(pod: Pod) -> tuple[str, str, str]:
    meta = pod.metadata
    return meta.creation_timestamp or "", meta.uid, meta.name


def _readable(facts: _SpecFacts, settings: PackingSettings) -> bool:
    try:
        facts.wishes.strict(settings.label_rules)
    except ValueError:
        return False
    return all(c.max_skew > 0 and c.topology_key for c in facts.wishes.spread)
