"""Which candidates a method takes: each method's own conditions, as blockers that events and `explain` share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from pykarpenter.api import labels
from pykarpenter.api.duration import NEVER
from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.core.disruption.blockers import Blocker, Notice
from pykarpenter.core.disruption.candidates import Candidate, World, claim_condition
from pykarpenter.core.disruption.commands import DisruptionClass
from pykarpenter.core.disruption.costs import unreadable_cost
from pykarpenter.core.disruption.windows import window_end
from pykarpenter.core.draining import DoNotDisrupt, Protection, do_not_disrupt, is_active
from pykarpenter.core.reasons import Why
from pykarpenter.core.snapshot import NodeView

Predicate = Callable[[World, Candidate], Blocker | None]

# A node that is merely not the method's business gets no event.
_SILENT = frozenset({Why.STATIC_POOL, Why.NOT_EMPTY, Why.WINDOW, Why.NOT_DRIFTED, Why.HEALTHY})
UNCONSOLIDATABLE_WINDOW_S = 15 * 60.0


@dataclass(slots=True)
class Selected:
    """A method's candidates, by name, and the events about the machines it did not take."""

    candidates: list[Candidate] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


def select(world: World, disruption_class: DisruptionClass, predicate: Predicate, event: str) -> Selected:
    selected = Selected()
    for view, judged in world.candidates(disruption_class):
        if isinstance(judged, Blocker):
            if judged.why is not Why.NO_NODE_CLAIM:
                selected.notices.append(node_notice(view, "DisruptionBlocked", judged.text()))
            continue
        blocker = predicate(world, judged)
        if blocker is None:
            selected.candidates.append(judged)
        elif blocker.why not in _SILENT:
            selected.notices.append(node_notice(view, event, blocker.text()))
    return selected


def node_notice(view: NodeView, reason: str, message: str, warning: bool = False) -> Notice:
    window = UNCONSOLIDATABLE_WINDOW_S if reason in ("Unconsolidatable", "NodeRepairBlocked") else 120.0
    kind = "Node" if view.node is not None else "NodeClaim"
    claim = view.claim.name if view.claim is not None else ""
    return Notice(kind, view.name, reason, message, warning, window, claim=claim)


def emptiness_blocker(world: World, candidate: Candidate) -> Blocker | None:
    disruption = candidate.pool.spec.disruption
    if candidate.pool.is_static:
        return _static(candidate)
    if disruption.consolidate_after == NEVER:
        return _disabled(candidate)
    if candidate.view.buffer_pods:
        return Blocker(Why.BUFFER_PODS, f"node {candidate.name} has buffer pods")
    if not candidate.is_empty:
        objects = tuple(f"Pod {pod.key}" for pod in candidate.pods)
        return Blocker(Why.NOT_EMPTY, f"node has {len(candidate.pods)} pods that need room elsewhere", objects)
    return window_blocker(world, candidate)


def consolidation_blocker(world: World, candidate: Candidate) -> Blocker | None:
    view, disruption = candidate.view, candidate.pool.spec.disruption
    if candidate.pool.is_static:
        return _static(candidate)
    if candidate.instance_type is None:
        name = view.labels.get(labels.INSTANCE_TYPE, "")
        return Blocker(Why.INSTANCE_TYPE_NOT_FOUND, f'Instance Type "{name}" not found')
    for key in (labels.CAPACITY_TYPE, labels.ZONE):
        if not view.labels.get(key):
            return Blocker(Why.LABEL_MISSING, f'node does not have label "{key}"')
    if disruption.consolidate_after == NEVER:
        return _disabled(candidate)
    if candidate.is_empty:
        return Blocker(Why.NOT_EMPTY, "node is empty: emptiness takes it, not consolidation")
    if disruption.consolidation_policy == "WhenEmpty":
        message = f'NodePool "{candidate.pool.name}" has consolidation policy WhenEmpty, but node is not empty'
        return Blocker(Why.POLICY, message, (f"NodePool {candidate.pool.name}",))
    window = window_blocker(world, candidate)
    if window is not None:
        return window
    if candidate.price is None:
        kind, zone = candidate.instance_type.name, view.labels[labels.ZONE]
        message = f"the price of {kind} ({candidate.capacity_type}) in {zone} is unknown, so no saving can be shown"
        return Blocker(Why.PRICE_UNKNOWN, message)
    return None


def drift_blocker(world: World, candidate: Candidate) -> Blocker | None:
    if candidate.pool.is_static:
        return _static(candidate)
    return None if claim_condition(candidate.view, "Drifted") == "True" else _not_drifted()


def static_drift_blocker(world: World, candidate: Candidate) -> Blocker | None:
    if not candidate.pool.is_static:
        return Blocker(Why.STATIC_POOL, f'NodePool "{candidate.pool.name}" is not static')
    return None if claim_condition(candidate.view, "Drifted") == "True" else _not_drifted()


def window_blocker(world: World, candidate: Candidate) -> Blocker | None:
    """The machine counts as quiet only once its claim says so; the window tells since when it would."""
    if claim_condition(candidate.view, "Consolidatable") == "True":
        return None
    end = window_end(candidate.view, candidate.pool)
    after = candidate.pool.spec.disruption.consolidate_after
    message = f"node had a pod event within consolidateAfter ({after})"
    if end <= world.now:
        return Blocker(Why.WINDOW, "node is not marked Consolidatable yet")
    return Blocker(Why.WINDOW, message, (f"NodePool {candidate.pool.name}",), end)


def _static(candidate: Candidate) -> Blocker:
    return Blocker(Why.STATIC_POOL, f'NodePool "{candidate.pool.name}" is static')


def _disabled(candidate: Candidate) -> Blocker:
    message = f'NodePool "{candidate.pool.name}" has consolidation disabled'
    return Blocker(Why.CONSOLIDATION_DISABLED, message, (f"NodePool {candidate.pool.name}",))


def _not_drifted() -> Blocker:
    return Blocker(Why.NOT_DRIFTED, "node is not drifted")


def annotation_notices(world: World) -> list[Notice]:
    """Events on pods about their do-not-disrupt annotation: not understood, in force until, or over."""
    notices: list[Notice] = []
    for view in world.nodes:
        if not view.managed:
            continue
        for pod in view.pods:
            if labels.DO_NOT_DISRUPT in pod.metadata.annotations and is_active(pod):
                notices.extend(_annotation_notice(pod.key, do_not_disrupt(pod, world.now)))
    return notices


def next_opening(world: World) -> float:
    """When the first machine that is blocked for a known time only may be looked at again; infinite without any."""
    judged = (found for _, found in world.candidates(DisruptionClass.GRACEFUL))
    ends = [found.until for found in judged if isinstance(found, Blocker) and found.until is not None]
    return min((end for end in ends if end > world.now), default=math.inf)


def unreadable_costs(world: World) -> list[tuple[str, str, str]]:
    """Pods whose own cost cannot be read and therefore counts nothing: pod, annotation, value."""
    managed = world.settings.pod_deletion_cost
    return [
        (pod.key, *found)
        for view in world.nodes
        if view.managed
        for pod in view.pods
        if pod.metadata.annotations and (found := unreadable_cost(pod, managed)) is not None
    ]


def _annotation_notice(key: str, state: DoNotDisrupt) -> list[Notice]:
    if state.form is Protection.INVALID:
        message = f'{labels.DO_NOT_DISRUPT}: "{state.value}" does not protect; use "true" or a duration such as 4h'
        return [Notice("Pod", key, "InvalidDoNotDisruptAnnotation", message, warning=True)]
    if state.form is Protection.UNTIL and state.until is not None:
        message = f"pod is protected from disruption until {format_timestamp(state.until)}"
        return [Notice("Pod", key, "DoNotDisruptUntil", message)]
    if state.form is Protection.ELAPSED:
        message = f"the do-not-disrupt period of {state.value} is over"
        return [Notice("Pod", key, "DoNotDisruptGracePeriodElapsed", message)]
    return []
