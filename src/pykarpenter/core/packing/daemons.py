"""What DaemonSets will take of each machine before any other pod gets there.

Preferences and pod (anti-)affinity of DaemonSets are not considered; every required affinity term is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pykarpenter.api.labels import LabelRules
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import Container, PodSpec, Toleration
from pykarpenter.api.workloads import DaemonSet
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.ports import HostPort, host_ports
from pykarpenter.core.requirements import Requirements, from_expressions, from_labels
from pykarpenter.core.resources import Resources, add, pod_requests, spec_requests
from pykarpenter.core.snapshot import ClusterSnapshot
from pykarpenter.core.taints import first_untolerated


@dataclass(frozen=True, slots=True, eq=False)
class DaemonShape:
    """One DaemonSet: what each of its pods takes and which machines get one."""

    name: str
    requests: Resources
    tolerations: tuple[Toleration, ...]
    # Alternatives; a machine gets a pod when it satisfies any of them.
    alternatives: tuple[Requirements, ...]
    ports: tuple[HostPort, ...]

    def tolerates(self, taints: Sequence[Taint]) -> bool:
        """Whether its pods land on such a machine; a PreferNoSchedule taint keeps no daemon away."""
        hard = [taint for taint in taints if taint.effect != "PreferNoSchedule"]
        return first_untolerated(hard, self.tolerations) is None


def daemon_shapes(snapshot: ClusterSnapshot, settings: PackingSettings) -> list[DaemonShape]:
    """The DaemonSets to reckon with, by name; one that cannot be read is left out."""
    shapes = []
    for daemon in sorted(snapshot.daemon_sets, key=lambda d: d.key):
        spec = daemon.spec.template.spec
        if settings.ignore_dra_requests and uses_devices(spec):
            continue
        try:
            shapes.append(_shape(daemon, spec, snapshot, settings.label_rules))
        except ValueError:
            continue
    return shapes


def uses_devices(spec: PodSpec) -> bool:
    """Whether the pod asks for devices by ResourceClaim."""
    return bool(spec.resource_claims) or any(
        container.resources.claims for container in (*spec.containers, *spec.init_containers)
    )


def _shape(daemon: DaemonSet, spec: PodSpec, snapshot: ClusterSnapshot, rules: LabelRules) -> DaemonShape:
    live = snapshot.daemon_pods.get(daemon.uid)
    requests = pod_requests(live) if live is not None else spec_requests(with_limits_as_requests(spec))
    source = live.spec if live is not None else spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else []
    selector = from_labels(source.node_selector, rules)
    alternatives = [selector.merged(from_expressions(t.match_expressions, rules).values()) for t in terms]
    return DaemonShape(
        daemon.key, requests, tuple(source.tolerations), tuple(alternatives or [selector]), host_ports(source)
    )


def with_limits_as_requests(spec: PodSpec) -> PodSpec:
    """The spec as the API server would default it: a limit without a request is the request."""
    return msgspec.structs.replace(
        spec,
        containers=[_defaulted(container) for container in spec.containers],
        init_containers=[_defaulted(container) for container in spec.init_containers],
    )


def _defaulted(container: Container) -> Container:
    resources = container.resources
    if not resources.limits or all(name in resources.requests for name in resources.limits):
        return container
    filled = msgspec.structs.replace(resources, requests={**resources.limits, **resources.requests})
    return msgspec.structs.replace(container, resources=filled)


class NodeDaemons:
    """What DaemonSets want of existing machines; machines alike in taints and relevant labels share one answer."""

    def __init__(self, shapes: Sequence[DaemonShape], rules: LabelRules, held: Sequence[object] = ()) -> None:
        self._shapes = shapes
        self._held = held
        # Changes when the answers may: machines remember by it what they were reckoned with.
        self.identity: object = object()
        self._rules = rules
        self._keys = sorted({key for s in shapes for alternative in s.alternatives for key in alternative})
        self._known: dict[tuple[object, ...], Resources] = {}

    def total(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> Resources:
        if not self._shapes:
            return {}
        relevant = {key: labels[key] for key in self._keys if key in labels}
        question = (tuple(sorted(relevant.items())), taints)
        found = self._known.get(question)
        if found is None:
            host = from_labels(relevant, self._rules)
            found = add(
                *(
                    shape.requests
                    for shape in self._shapes
                    if shape.tolerates(taints) and any(host.compatible(a) for a in shape.alternatives)
                )
            )
            self._known[question] = found
        return found
