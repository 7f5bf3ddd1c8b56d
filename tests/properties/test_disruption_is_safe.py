"""Safety properties of disruption decisions, over generated fleets: whatever the fleet, no command breaks them.

The judge is the plain packer and plain arithmetic, never the code under test.
"""

from __future__ import annotations

import random

import pytest

from pykarpenter.api import labels
from pykarpenter.api.pods import Pod
from pykarpenter.core.disruption.commands import Command, Decision, Method, Reason
from pykarpenter.core.disruption.decide import decide, run_method
from pykarpenter.core.disruption.simulation import Question
from pykarpenter.core.repair import REPLACE, RepairPolicy, RepairRules
from tests.support.fleet import NOON, Fleet, PlainSimulation, condition, pending, pod
from tests.transcripts.story import Story

SEEDS = range(60)
RULES = RepairRules([RepairPolicy("Sick", "True", "", 600.0, None, 0, REPLACE)])
GATES = {"node_repair": True, "repair": RULES, "spot_to_spot": True}


def draw(seed: int) -> Fleet:
    """A fleet with uneven prices, unknown prices, protection, drift, sickness, windows and budgets."""
    rng = random.Random(f"fleet/{seed}")
    fleet = Fleet()
    fleet.engine = "fast"
    for name, cpu, price in (("s", 2, 0.5), ("m", 4, 1.0), ("l", 8, 1.9), ("x", 16, 4.2)):
        spot = round(price * rng.uniform(0.2, 0.9), 3) if rng.random() < 0.6 else None
        fleet.type(name, cpu=cpu, gi=cpu * 4, price=price * rng.uniform(0.8, 1.2), spot=spot)
    fleet.type("u", cpu=4, gi=16, unpriced=True)
    for index in range(rng.randint(1, 3)):
        fleet.pool(
            f"pool-{index}",
            budgets=[rng.choice(["100%", "50%", "20%", "1", "0"])],
            after=rng.choice(["0s", "0s", "10m"]),
            policy=rng.choice(["WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced", "WhenEmpty"]),
        )
    for index in range(rng.randint(3, 9)):
        _add_node(fleet, rng, f"n{index}")
    if rng.random() < 0.3:
        fleet.pending.append(pending("waiting", cpu=rng.choice([1, 3, 40])))
    if rng.random() < 0.4:
        fleet.pdb("guard", {"app": "guarded"}, allowed=rng.choice([0, 1]))
    return fleet


def _add_node(fleet: Fleet, rng: random.Random, name: str) -> None:
    kind = rng.choice(["s", "m", "m", "l", "x", "u"])
    spot = any(o.capacity_type == labels.SPOT for o in fleet.types[kind].offerings) and rng.random() < 0.4
    left = {"s": 2, "m": 4, "u": 4, "l": 8, "x": 16}[kind]
    pods: list[Pod] = []
    has_disk = rng.random() < 0.3
    while left > 0 and rng.random() < 0.65:
        cpu = rng.choice([0.5, 1, 2])
        if cpu > left:
            break
        left -= cpu
        protected = {labels.DO_NOT_DISRUPT: "true"} if rng.random() < 0.08 else {}
        app = "guarded" if rng.random() < 0.15 else "free"
        # A label that no pool gives: such a pod has a place only on the few machines that carry it.
        pinned = {"node_selector": {"disk": "ssd"}} if has_disk and rng.random() < 0.4 else {}
        pods.append(pod(f"{name}-{len(pods)}", cpu=cpu, annotations=protected, match={"app": app}, **pinned))
    sick = [condition("Ready"), condition("Sick", "True", "x", NOON - 3600)]
    recent = rng.random() < 0.3
    pool = rng.choice(sorted(fleet.pools))
    window = fleet.pools[pool].spec.disruption.consolidate_after
    fleet.node(
        name,
        pool=pool,
        type=kind,
        capacity_type=labels.SPOT if spot else labels.ON_DEMAND,
        extra_labels={"disk": "ssd"} if has_disk else {},
        pods=pods,
        consolidatable=not (recent and window != "0s"),
        last_pod_event=NOON - (60 if recent else 7200),
        drifted=NOON - 60 if rng.random() < 0.15 else None,
        grace=rng.choice([None, None, "1h"]),
        nominated_until=NOON + 10 if rng.random() < 0.1 else 0.0,
        marked_for_deletion=rng.random() < 0.08,
        initialized=rng.random() > 0.07,
        node_conditions=sick if rng.random() < 0.07 else None,
    )


def commands(fleet: Fleet) -> list[Command]:
    """The commands of every method on its own, so that the later ones are judged too."""
    world = fleet.world(**GATES)
    simulation = fleet.simulation()
    return [c for method in Method for c in run_method(world, simulation, method).commands]


@pytest.mark.parametrize("seed", SEEDS)
def test_s4_no_command_passes_a_budget(seed):
    """What is going plus what a command takes stays within the pool's numbers."""
    fleet = draw(seed)
    for command in commands(fleet):
        for pool in {target.pool for target in command.targets}:
            mine = [v for v in fleet.nodes.values() if v.pool_name == pool and (v.initialized or v.rebooting)]
            going = sum(v.marked_for_deletion for v in mine)
            text = fleet.pools[pool].spec.disruption.budgets[0].nodes
            allowed = -(-int(text[:-1]) * len(mine) // 100) if text.endswith("%") else int(text)
            taken = [t for t in command.targets if t.pool == pool and fleet.nodes[t.node].initialized]
            assert not taken or going + len(taken) <= allowed


@pytest.mark.parametrize("seed", SEEDS)
def test_s5_s6_no_graceful_command_touches_protected_pods(seed):
    """do-not-disrupt and exhausted budgets hold against consolidation, and against drift without a grace period."""
    fleet = draw(seed)
    closed = {b.spec.selector.match_labels["app"] for b in fleet.pdbs if b.status.disruptions_allowed == 0}
    for command in commands(fleet):
        for target in command.targets:
            view = fleet.nodes[target.node]
            consents = command.method is Method.REPAIR or (
                command.reason is Reason.DRIFTED and view.claim.spec.termination_grace_period is not None
            )
            if consents:
                continue
            for found in view.pods:
                assert labels.DO_NOT_DISRUPT not in found.metadata.annotations
                assert found.metadata.labels["app"] not in closed


@pytest.mark.parametrize("seed", SEEDS)
def test_s13_every_consolidation_saves_and_leaves_every_pod_a_place(seed):
    """Judged by the plain packer: nothing fails, no more machines are needed than the command launches."""
    fleet = draw(seed)
    plain = PlainSimulation(fleet.snapshot())
    for command in commands(fleet):
        if command.method not in (Method.MULTI_NODE, Method.SINGLE_NODE):
            continue
        prices = [target.price for target in command.targets]
        assert None not in prices
        for claim in command.replacements:
            options = {t.name: t for t in fleet.types.values() if t.name in claim.instance_types}
            allowed = next((r.values for r in claim.requirements if r.key == labels.CAPACITY_TYPE), None)
            for kind in options.values():
                launchable = [o for o in kind.offerings if o.launchable and (not allowed or o.capacity_type in allowed)]
                first = min(labels.CAPACITY_TYPES.index(o.capacity_type) for o in launchable)
                worst = max(o.price for o in launchable if labels.CAPACITY_TYPES.index(o.capacity_type) == first)
                assert worst < sum(prices), "even the worst launch is cheaper"
        moved = tuple(p for t in command.targets for p in fleet.nodes[t.node].pods if p.key in t.pods)
        answer = plain.ask(Question(frozenset(command.nodes), moved))
        assert not set(answer.failed) & {p.key for p in moved}
        assert len(answer.claims) <= len(command.replacements) + (1 if fleet.pending else 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_s8_drift_and_repair_bring_the_room_that_pods_need(seed):
    """Every pod that will leave is on an existing machine or on a replacement of the command."""
    fleet = draw(seed)
    for command in commands(fleet):
        if command.reason not in (Reason.DRIFTED, Reason.UNHEALTHY) or command.decision is Decision.TERMINATE_FIRST:
            continue
        placed = {key for p in command.placements for key in p.pods}
        placed |= {key for claim in command.replacements for key in claim.pods}
        for target in command.targets:
            for found in fleet.nodes[target.node].pods:
                held = labels.DO_NOT_DISRUPT in found.metadata.annotations and command.reason is Reason.DRIFTED
                assert held or found.key in placed


@pytest.mark.parametrize("seed", SEEDS)
def test_s12_machines_that_are_going_starting_or_nominated_are_left_alone(seed):
    """Repair alone may take a machine that is not initialized, and no pod is moved onto one."""
    fleet = draw(seed)
    for command in commands(fleet):
        own = {key for target in command.targets for key in target.pods}
        for placement in command.placements:
            assert fleet.nodes[placement.node].initialized or not own & set(placement.pods)
        for target in command.targets:
            view = fleet.nodes[target.node]
            assert not view.marked_for_deletion
            if command.method is not Method.REPAIR:
                assert view.initialized
                assert view.nominated_until <= NOON


@pytest.mark.parametrize("seed", range(20))
def test_l5_consolidation_of_a_still_fleet_ends(seed):
    """Each command lowers the bill, so carrying them out perfectly must come to an end."""
    story = Story()
    story.fleet = draw(seed)
    for view in list(story.fleet.nodes.values()):
        if view.marked_for_deletion or not view.initialized or view.nominated_until:
            del story.fleet.nodes[view.name]
    bill = story._bill()
    for _ in range(60):
        plan = decide(story.fleet.world(spot_to_spot=True), story.fleet.simulation())
        graceful = [c for c in plan.commands if c.consolidation_type]
        if not plan.commands or not graceful:
            break
        story.last = graceful[0]
        story.apply([])
        now = story._bill()
        assert now < bill or story.last.reason is Reason.EMPTY
        bill = now
    else:
        pytest.fail("sixty commands and no end")


def test_generated_fleets_lead_to_every_kind_of_command():
    """A generator that never provokes a method proves nothing about it."""
    seen = {(c.method, c.decision) for seed in SEEDS for c in commands(draw(seed))}
    methods = {method for method, _ in seen}
    assert methods >= {Method.REPAIR, Method.EMPTINESS, Method.DRIFT, Method.MULTI_NODE, Method.SINGLE_NODE}
    assert {decision for _, decision in seen} >= {Decision.DELETE, Decision.REPLACE}
