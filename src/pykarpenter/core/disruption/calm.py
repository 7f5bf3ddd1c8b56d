"""Whether a saving is worth the pods it moves: no eviction for pennies, and none twice before the first has paid.

Moving a pod is taken to cost its price in $/h over the horizon. A command must save at least that price for each pod
it moves; a workload that was moved within the horizon counts double, so that moving it again covers both moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pykarpenter.api.pods import Pod
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.reasons import Why

HORIZON_S = 24 * 3600.0
# What a pod of a workload that was moved within the horizon counts.
AGAIN = 2.0


def workload_of(pod: Pod) -> str:
    """Who makes the pod's successor: its controller, or the pod itself when it has none."""
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return f"{pod.namespace}/{owner.kind}/{owner.name}"
    return pod.key


def weight(pods: Iterable[Pod], displaced_at: Mapping[str, float], now: float) -> float:
    """What moving these pods counts, in pods."""
    recent = (now - displaced_at.get(workload_of(pod), -math.inf) < HORIZON_S for pod in pods)
    return math.fsum(AGAIN if again else 1.0 for again in recent)


def must_save(world: World, candidates: Sequence[Candidate]) -> float:
    """What moving the candidates' pods has to save, in $/h."""
    pods = [pod for candidate in candidates for pod in candidate.pods]
    counted = weight(pods, world.memory.displaced_at, world.now)
    return max(world.settings.min_saving, world.settings.eviction_price * counted)


def not_worth_it(world: World, candidates: Sequence[Candidate], saving: float) -> Blocker | None:
    """What speaks against moving the candidates' pods for this much; None when it pays."""
    minimum, price = world.settings.min_saving, world.settings.eviction_price
    paid = [candidate.price for candidate in candidates]
    price_now = math.fsum(p for p in paid if p is not None) if None not in paid else None
    if minimum > 0 and saving < minimum:
        message = f"the saving of ${saving:.4f}/h is below the minimum of ${minimum:.4f}/h"
        return Blocker(Why.MIN_SAVING, message, price_now=price_now)
    pods = [pod for candidate in candidates for pod in candidate.pods]
    counted = weight(pods, world.memory.displaced_at, world.now)
    if saving >= price * counted:
        return None
    again = " (workloads moved within a day count double)" if counted > len(pods) else ""
    message = (
        f"the saving of ${saving:.4f}/h does not pay for moving {len(pods)} pods at ${price:g}/h each{again}: "
        f"it would have to be ${price * counted:.4f}/h"
    )
    return Blocker(Why.PAY_BACK, message, price_now=price_now)
