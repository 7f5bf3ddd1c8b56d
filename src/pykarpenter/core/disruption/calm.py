"""Whether a saving is worth the pods it moves: no eviction for pennies, and none twice before the first has paid.

Moving a pod is taken to cost its price in $/h over the horizon. A command must save at least that price for each pod
it moves; a workload that was moved within the horizon counts at least double, so that moving it again covers both
moves, and the more the shorter ago that was and the younger the machine is: what was bought an hour ago and is already
to go shows how long savings last at present. Pods of a pool whose pods lately did not land where planned count more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.reasons import Why

HORIZON_S = 24 * 3600.0
# What a pod of a workload that was moved within the horizon counts at least: its gain has to cover both moves.
AGAIN = 2.0
# What it counts at most: within some five hours of the move, on a machine that is no older. A higher figure would start
# to fall sooner, and moves that were too dear at first would break the silence of a steady load within the hour.
AT_ONCE = 5.0
# What a pod counts in a pool whose pods did not land where planned.
COOLING = 4.0


def workload_of(pod: Pod) -> str:
    """Who makes the pod's successor: its controller, or the pod itself when it has none."""
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return f"{pod.namespace}/{owner.kind}/{owner.name}"
    return pod.key


def weight(pods: Iterable[Pod], displaced_at: Mapping[str, float], now: float, stood_s: float = 0.0) -> float:
    """What moving these pods counts, in pods; `stood_s` is the age of the machine that they are on.

    Where pods moved an hour ago and machines stood for an hour, things are likely to change again soon: a saving is
    trusted to last as long as the last one did, or as the machine stood, whichever is longer.
    """
    return math.fsum(_times(now - displaced_at.get(workload_of(pod), -math.inf), stood_s) for pod in pods)


def _times(elapsed_s: float, stood_s: float) -> float:
    if elapsed_s >= HORIZON_S:
        return 1.0
    return min(AT_ONCE, max(AGAIN, HORIZON_S / max(elapsed_s, stood_s, 1.0)))


def _stood(world: World, candidate: Candidate) -> float:
    claim = candidate.view.claim
    created = parse_optional_timestamp(claim.metadata.creation_timestamp) if claim is not None else None
    return HORIZON_S if created is None else world.now - created


def counted(world: World, candidates: Iterable[Candidate]) -> float:
    """What moving the candidates' pods counts, in pods; those of a pool that cools down count more."""
    found = 0.0
    for candidate in candidates:
        cooling = world.memory.cooling_until.get(candidate.pool.name, 0.0) > world.now
        pods = weight(candidate.pods, world.memory.displaced_at, world.now, _stood(world, candidate))
        found += pods * COOLING if cooling else pods
    return found


def must_save(world: World, candidates: Sequence[Candidate]) -> float:
    """What moving the candidates' pods has to save, in $/h."""
    return max(world.settings.min_saving, world.settings.eviction_price * counted(world, candidates))


def not_worth_it(world: World, candidates: Sequence[Candidate], saving: float) -> Blocker | None:
    """What speaks against moving the candidates' pods for this much; None when it pays."""
    minimum, price = world.settings.min_saving, world.settings.eviction_price
    paid = [candidate.price for candidate in candidates]
    price_now = math.fsum(p for p in paid if p is not None) if None not in paid else None
    if minimum > 0 and saving < minimum:
        message = f"the saving of ${saving:.4f}/h is below the minimum of ${minimum:.4f}/h"
        return Blocker(Why.MIN_SAVING, message, price_now=price_now)
    wanted = price * counted(world, candidates)
    if saving >= wanted:
        return None
    pods = sum(len(candidate.pods) for candidate in candidates)
    message = (
        f"the saving of ${saving:.4f}/h does not pay for moving {pods} pods at ${price:g}/h each"
        f"{_why_more(world, candidates)}: it would have to be ${wanted:.4f}/h"
    )
    return Blocker(Why.PAY_BACK, message, price_now=price_now)


def _why_more(world: World, candidates: Sequence[Candidate]) -> str:
    """In brackets, what makes pods count more than once."""
    reasons: list[str] = []
    pods = [pod for candidate in candidates for pod in candidate.pods]
    if weight(pods, world.memory.displaced_at, world.now) > len(pods):
        reasons.append("workloads moved within a day count more")
    pools = sorted({c.pool.name for c in candidates if world.memory.cooling_until.get(c.pool.name, 0.0) > world.now})
    if pools:
        reasons.append(f"pods moved lately from NodePool {', '.join(pools)} did not land where planned")
    return f" ({'; '.join(reasons)})" if reasons else ""
