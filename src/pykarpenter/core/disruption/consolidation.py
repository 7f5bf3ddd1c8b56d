"""Whether a set of machines can go for less money: deleted outright, or for cheaper machines, by default one.

Decides from one simulation and known prices. A replacement must be cheaper even at its worst launch, so that a
shortage of the cheap offering cannot turn a saving into a loss.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pykarpenter.api import labels
from pykarpenter.core.disruption.blockers import Blocker, Notice
from pykarpenter.core.disruption.calm import must_save, not_worth_it
from pykarpenter.core.disruption.candidates import Candidate, World
from pykarpenter.core.disruption.commands import Command, Decision, Method, Reason, command_id
from pykarpenter.core.disruption.holds import back_off_blocker
from pykarpenter.core.disruption.prices import (
    Option,
    admits,
    claim_requirements,
    needed_for_min_values,
    restrict_capacity_type,
    unmet_min_values,
    with_options,
)
from pykarpenter.core.disruption.selection import node_notice
from pykarpenter.core.disruption.settings import SPOT_FLEXIBILITY
from pykarpenter.core.disruption.several import limits, too_dear
from pykarpenter.core.disruption.simulation import Outcome, Simulation, simulate
from pykarpenter.core.disruption.staging import unschedulable
from pykarpenter.core.packing_settings import ShouldStop, never_stop
from pykarpenter.core.plans import PlannedClaim
from pykarpenter.core.reasons import Why


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A command and the options of its replacement, cheapest first."""

    command: Command
    options: tuple[Option, ...] = ()


def propose(
    world: World,
    simulation: Simulation,
    candidates: Sequence[Candidate],
    method: Method,
    most_claims: int = 1,
    should_stop: ShouldStop = never_stop,
) -> Proposal | Blocker:
    """The command for exactly these candidates with at most so many replacements, or why there is none.

    With more than one the new machines are the cheapest mix that provisioning would find. Once `should_stop` says so
    the simulation breaks off, and what comes back means nothing.
    """
    outcome = simulate(
        world,
        simulation,
        candidates,
        consolidation=True,
        cheapest_mix=most_claims > 1,
        should_stop=should_stop,
    )
    if not outcome.ok:
        return unschedulable(outcome)
    paid = price_of(candidates)
    if paid is None:
        return Blocker(Why.PRICE_UNKNOWN, "the price of a candidate is unknown, so no saving can be shown")
    if not outcome.claims:
        return not_worth_it(world, candidates, paid) or Proposal(_command(world, candidates, method, outcome, (), paid))
    if len(outcome.claims) > most_claims:
        message = f"can't remove without creating {len(outcome.claims)} candidates"
        return Blocker(Why.TOO_MANY_REPLACEMENTS, message, price_now=paid)
    held = next((b for c in candidates if (b := back_off_blocker(world, c.pool.name)) is not None), None)
    if held is not None:
        return held
    priced = _paying(world, candidates, outcome.claims, paid)
    if isinstance(priced, Blocker):
        return priced
    claims = tuple(claim for claim, _ in priced)
    saving = paid - math.fsum(options[0].best for _, options in priced)
    return Proposal(_command(world, candidates, method, outcome, claims, saving), tuple(priced[0][1]))


Priced = tuple[PlannedClaim, list[Option]]


def _paying(
    world: World, candidates: Sequence[Candidate], claims: Sequence[PlannedClaim], paid: float
) -> list[Priced] | Blocker:
    """The new machines narrowed to options that are cheaper and, launched at their worst, still pay for the moves."""
    found = _replacements(world, candidates, claims, paid)
    if isinstance(found, Blocker):
        return found
    blocker = not_worth_it(world, candidates, paid - math.fsum(options[0].best for _, options in found))
    margin = must_save(world, candidates)
    worst = math.fsum(max(option.worst for option in options) for _, options in found)
    if blocker is not None or worst < paid - margin:
        return blocker or found
    sure = _replacements(world, candidates, claims, paid - margin)
    if isinstance(sure, Blocker):
        message = f"launched at its worst price it would not save the ${margin:.4f}/h that moving the pods takes"
        return Blocker(Why.PAY_BACK, message, price_now=paid, price_found=sure.price_found)
    return sure


def _replacements(
    world: World, candidates: Sequence[Candidate], claims: Sequence[PlannedClaim], spend: float
) -> list[Priced] | Blocker:
    shares = [spend] if len(claims) == 1 else limits(world, candidates, claims, spend)
    if not shares:
        return too_dear(claims, spend)
    found: list[Priced] = []
    for claim, share in zip(claims, shares, strict=True):
        priced = replacement(world, candidates, claim, share)
        if isinstance(priced, Blocker):
            return priced
        found.append(priced)
    return found


def price_of(candidates: Sequence[Candidate]) -> float | None:
    prices = [candidate.price for candidate in candidates]
    known = [price for price in prices if price is not None]
    return math.fsum(known) if len(known) == len(prices) else None


def replacement(
    world: World, candidates: Sequence[Candidate], claim: PlannedClaim, paid: float
) -> tuple[PlannedClaim, list[Option]] | Blocker:
    """The one new machine narrowed to what is cheaper than all candidates together."""
    rules = world.settings.label_rules
    requirements = claim_requirements(claim, rules)
    all_spot = all(candidate.capacity_type == labels.SPOT for candidate in candidates)
    if all_spot and admits(requirements, labels.SPOT):
        return _spot_to_spot(world, candidates, claim, paid)
    options = world.prices.options(claim, world.types(claim.node_pool))
    cheaper = _cheaper(world, claim, options, paid)
    if isinstance(cheaper, Blocker):
        return cheaper
    if admits(requirements, labels.SPOT) and admits(requirements, labels.ON_DEMAND):
        return _on_spot_if_any(world, claim, cheaper, paid)
    return with_options(claim, cheaper), cheaper


def _on_spot_if_any(
    world: World, claim: PlannedClaim, cheaper: list[Option], paid: float
) -> tuple[PlannedClaim, list[Option]] | Blocker:
    """Bound to spot where any option has it, so that a spot shortage fails rather than buying dearer on-demand."""
    narrowed = restrict_capacity_type(with_options(claim, cheaper), labels.SPOT)
    options = world.prices.options(narrowed, world.types(claim.node_pool))
    if all(option.cheapest is None for option in options):
        return with_options(claim, cheaper), cheaper
    on_spot = _cheaper(world, narrowed, options, paid)
    if isinstance(on_spot, Blocker):
        return on_spot
    return with_options(narrowed, on_spot), on_spot


def _spot_to_spot(
    world: World, candidates: Sequence[Candidate], claim: PlannedClaim, paid: float
) -> tuple[PlannedClaim, list[Option]] | Blocker:
    if not world.settings.spot_to_spot:
        message = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
        return Blocker(Why.SPOT_TO_SPOT, message, price_now=paid)
    rules = world.settings.label_rules
    narrowed = restrict_capacity_type(claim, labels.SPOT)
    options = world.prices.options(narrowed, world.types(claim.node_pool))
    cheaper = _cheaper(world, narrowed, [option for option in options if option.cheapest is not None], paid)
    if isinstance(cheaper, Blocker):
        return cheaper
    if len(candidates) > 1:
        return with_options(narrowed, cheaper), cheaper
    if len(cheaper) < SPOT_FLEXIBILITY:
        message = (
            f"SpotToSpotConsolidation requires {SPOT_FLEXIBILITY} cheaper instance type options than the current "
            f"candidate to consolidate, got {len(cheaper)}"
        )
        return Blocker(Why.SPOT_TO_SPOT, message, price_now=paid, price_found=cheaper[0].best)
    # Only the cheapest fifteen: what is launched then lies inside the set and does not ask to be replaced again.
    kinds = [option.type for option in cheaper]
    keep = max(SPOT_FLEXIBILITY, needed_for_min_values(claim_requirements(narrowed, rules), kinds))
    return with_options(narrowed, cheaper[:keep]), cheaper[:keep]


def _cheaper(world: World, claim: PlannedClaim, options: Sequence[Option], limit: float) -> list[Option] | Blocker:
    """The options whose worst launch is below the limit, as long as minValues still holds."""
    kept = [option for option in options if option.worst < limit]
    best = min((option.best for option in options), default=math.inf)
    found = best if math.isfinite(best) else None
    requirements = claim_requirements(claim, world.settings.label_rules)
    unmet = unmet_min_values(requirements, [option.type for option in kept])
    if unmet:
        return Blocker(Why.MIN_VALUES, f"filtering by price: {unmet}", price_now=limit, price_found=found)
    if not kept:
        message = "can't replace with a cheaper node"
        return Blocker(Why.NOT_CHEAPER, message, price_now=limit, price_found=found)
    return kept


def without_same_type(world: World, candidates: Sequence[Candidate], proposal: Proposal) -> Proposal | Blocker:
    """Several machines for one: not for a type that is among them, unless it is cheaper than keeping that one.

    Otherwise deleting the others and keeping the cheapest would be as good, with fewer pods moved.
    """
    if len(proposal.command.replacements) != 1:
        return proposal
    prices: dict[str, float] = {}
    for candidate in candidates:
        if candidate.instance_type is not None and candidate.price is not None:
            name = candidate.instance_type.name
            prices[name] = min(prices.get(name, math.inf), candidate.price)
    limit = min((prices[o.type.name] for o in proposal.options if o.type.name in prices), default=math.inf)
    if math.isinf(limit):
        return proposal
    claim = proposal.command.replacements[0]
    kept = _cheaper(world, claim, proposal.options, limit)
    if isinstance(kept, Blocker):
        message = f"keeping one of the candidates is as good: {kept.message}"
        return Blocker(Why.SAME_TYPE, message, price_now=limit, price_found=kept.price_found)
    narrowed = with_options(claim, kept)
    saving = (proposal.command.price_now or 0.0) - kept[0].best
    return Proposal(replace_claim(proposal.command, narrowed, saving), tuple(kept))


def replace_claim(command: Command, claim: PlannedClaim, saving: float) -> Command:
    return dataclasses.replace(command, replacements=(claim,), saving=saving)


def _command(
    world: World,
    candidates: Sequence[Candidate],
    method: Method,
    outcome: Outcome,
    claims: tuple[PlannedClaim, ...],
    saving: float,
) -> Command:
    targets = tuple(candidate.target() for candidate in candidates)
    return Command(
        id=command_id(method, tuple(t.claim_uid for t in targets), world.now, world.snapshot.revision),
        method=method,
        reason=Reason.UNDERUTILIZED,
        decision=Decision.REPLACE if claims else Decision.DELETE,
        targets=targets,
        replacements=claims,
        placements=outcome.existing,
        saving=saving,
    )


def candidate_notices(candidates: Sequence[Candidate], proposal: Proposal) -> list[Notice]:
    """Replacements are announced on each machine; deletes are not."""
    if not proposal.command.replacements:
        return []
    saving = proposal.command.saving or 0.0
    message = f"Consolidation candidate: {proposal.command.text()} (savings: ${saving:.2f})"
    return [node_notice(candidate.view, "ConsolidationCandidate", message) for candidate in candidates]
