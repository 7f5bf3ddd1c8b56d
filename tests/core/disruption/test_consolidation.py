"""Under-used machines: deleted or replaced for less money, never for a machine of unknown price."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from pykarpenter.api import labels
from pykarpenter.api.pods import NodeSelectorRequirement
from pykarpenter.core.disruption import multi_node, single_node
from pykarpenter.core.disruption.balanced import Scales
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.commands import Decision, Method
from pykarpenter.core.disruption.consolidation import propose, without_same_type
from pykarpenter.core.disruption.decide import decide
from pykarpenter.core.disruption.settings import Memory
from pykarpenter.core.disruption.single_node import taking_turns
from pykarpenter.core.reasons import Why
from tests.support.fleet import NOON, Fleet, candidate, pending, pod


def never() -> bool:
    return False


def fleet_of(**pool) -> Fleet:
    fleet = Fleet()
    fleet.type("s", cpu=2, gi=8, price=0.5)
    fleet.type("m", cpu=4, gi=16, price=1.0)
    fleet.type("l", cpu=8, gi=32, price=2.0)
    fleet.pool(**({"budgets": ["100%"]} | pool))
    return fleet


def asked(fleet: Fleet, *names: str, **gates):
    world = fleet.world(**gates)
    return propose(world, fleet.simulation(), [candidate(world, name) for name in names], Method.SINGLE_NODE)


@pytest.mark.promise("DIS-8.1")
def test_machine_whose_pods_fit_elsewhere_is_deleted():
    """No replacement, no price test."""
    fleet = fleet_of()
    fleet.node("a", pods=[pod("x")])
    fleet.node("b", pods=[pod("y")])
    command = asked(fleet, "a").command
    assert command.decision is Decision.DELETE
    assert command.saving == 1.0
    assert [(p.node, p.pods) for p in command.placements] == [("b", ("default/x",))]


@pytest.mark.promise("DIS-8.2")
def test_set_that_needs_two_new_machines_is_left_alone():
    """One replacement is the rule of compatibility."""
    fleet = fleet_of()
    fleet.node("a", type="l", pods=[pod("x", cpu=7), pod("y", cpu=1)])
    fleet.node("b", type="l", pods=[pod("z", cpu=7)])
    blocker = asked(fleet, "a", "b")
    assert blocker.why is Why.TOO_MANY_REPLACEMENTS
    assert blocker.text() == "Can't remove without creating 2 candidates"


@pytest.mark.promise("DIS-8.3", "DIS-8.8")
def test_s13_replacement_must_be_cheaper():
    """Moving pods for nothing is churn."""
    fleet = fleet_of()
    fleet.node("a", pods=[pod("x", cpu=3)])
    blocker = asked(fleet, "a")
    assert blocker.why is Why.NOT_CHEAPER
    assert (blocker.price_now, blocker.price_found) == (1.0, 1.0)
    fleet.node("a", type="l", pods=[pod("x", cpu=3)])
    command = asked(fleet, "a").command
    assert command.replacements[0].instance_types == ("m",)
    assert command.saving == pytest.approx(1.0)


@pytest.mark.promise("DIS-8.3")
def test_s13_dearest_zone_of_a_replacement_counts():
    """The cloud may give the dear zone; then the move must still pay."""
    fleet = Fleet()
    fleet.type("m", cpu=4, price=1.0)
    fleet.pool(budgets=["100%"])
    cheap = fleet.type("s", cpu=2, price=0.5, zones=("zone-1",))
    dear = fleet.type("tmp", cpu=2, price=1.5, zones=("zone-2",))
    del fleet.types["tmp"]
    fleet.types["s"] = dataclasses.replace(
        cheap,
        offerings=(*cheap.offerings, *dear.offerings),
        requirements=cheap.requirements.without(labels.ZONE).merged(
            [dataclasses.replace(cheap.requirements[labels.ZONE], values=frozenset({"zone-1", "zone-2"}))]
        ),
    )
    fleet.node("a", pods=[pod("x", cpu=1)])
    assert asked(fleet, "a").why is Why.NOT_CHEAPER


@pytest.mark.promise("DIS-3.3.5")
def test_f44_machine_of_unknown_price_is_not_consolidated():
    """Nobody can say what it saves."""
    fleet = fleet_of()
    fleet.type("u", cpu=4, unpriced=True)
    fleet.node("a", type="u", pods=[pod("x")])
    fleet.node("b", pods=[pod("y", cpu=3)])
    run = single_node.run(fleet.world(), fleet.simulation(), never)
    assert all("a" not in command.nodes for command in run.commands)
    (notice,) = [n for n in run.notices if n.name == "a"]
    assert notice.reason == "Unconsolidatable"
    assert "price of u (on-demand) in zone-1 is unknown" in notice.message


@pytest.mark.promise("DIS-3.3.5")
def test_f44_option_of_unknown_price_is_never_called_cheaper():
    """Missing is not zero."""
    fleet = fleet_of()
    fleet.types.pop("s")
    fleet.type("free", cpu=2, unpriced=True)
    fleet.node("a", pods=[pod("x", cpu=1)])
    assert asked(fleet, "a").why is Why.NOT_CHEAPER


@pytest.mark.promise("DIS-8.4")
def test_replacement_that_could_be_spot_is_bound_to_spot():
    """A spot shortage must fail the launch, not buy dearer on-demand."""
    fleet = Fleet()
    fleet.type("s", cpu=2, price=0.9, spot=0.2)
    fleet.type("m", cpu=4, price=1.0, spot=0.4)
    fleet.pool(budgets=["100%"], capacity_types=["spot", "on-demand"])
    fleet.node("a", pods=[pod("x")])
    claim = asked(fleet, "a").command.replacements[0]
    (capacity,) = [r for r in claim.requirements if r.key == labels.CAPACITY_TYPE]
    assert capacity.values == ["spot"]
    assert claim.instance_types == ("s", "m")


@pytest.mark.promise("DIS-8.6")
def test_min_values_must_hold_after_the_price_filter():
    """Flexibility was asked for."""
    wanted = NodeSelectorRequirement(
        key=labels.INSTANCE_TYPE, operator="In", values=["s", "m", "l", "xs"], min_values=2
    )
    fleet = fleet_of(requirements=[wanted])
    fleet.node("a", pods=[pod("x", cpu=1)])
    blocker = asked(fleet, "a")
    assert blocker.why is Why.MIN_VALUES
    assert blocker.text().startswith("Filtering by price: minValues requirement is not met")
    fleet.type("xs", cpu=2, price=0.4)
    assert asked(fleet, "a").command.replacements[0].instance_types == ("xs", "s")
    # With nothing cheaper at all it is still the flexibility that is reported.
    fleet.node("a", type="xs", pods=[pod("x", cpu=1)])
    assert asked(fleet, "a").why is Why.MIN_VALUES


def spot_fleet(cheaper: int) -> Fleet:
    fleet = Fleet()
    fleet.type("now", cpu=4, price=9.0, spot=1.0)
    for index in range(cheaper):
        fleet.type(f"t{index:02d}", cpu=2, price=9.0, spot=0.1 + index / 100)
    fleet.pool(budgets=["100%"], capacity_types=["spot"])
    fleet.node("a", type="now", capacity_type=labels.SPOT, pods=[pod("x")])
    return fleet


@pytest.mark.promise("DIS-8.5", "DIS-18.5")
def test_acceptance_5_spot_to_spot_needs_its_gate_and_fifteen_cheaper_types():
    """Fewer choices mean a race to the bottom and more interruptions."""
    assert asked(spot_fleet(20), "a").why is Why.SPOT_TO_SPOT
    refused = asked(spot_fleet(14), "a", spot_to_spot=True)
    assert refused.message.endswith("got 14")
    claim = asked(spot_fleet(20), "a", spot_to_spot=True).command.replacements[0]
    assert claim.instance_types == tuple(f"t{index:02d}" for index in range(15))


@pytest.mark.promise("DIS-8.5")
def test_several_spot_machines_for_one_need_no_flexibility():
    """Going from two to one cannot repeat for ever."""
    fleet = spot_fleet(3)
    fleet.node("b", type="now", capacity_type=labels.SPOT, pods=[pod("y")])
    assert asked(fleet, "a", "b", spot_to_spot=True).command.decision is Decision.REPLACE


@pytest.mark.promise("DIS-7.7", "DIS-18.4")
def test_acceptance_4_several_machines_are_not_replaced_by_one_of_their_own_type():
    """Keeping the cheap one and deleting the others is as good, with fewer pods moved."""
    fleet = Fleet()
    fleet.pool(budgets=["100%"])
    fleet.type("a", cpu=8, price=1.0)
    fleet.type("b", cpu=8, price=3.0)
    fleet.type("c", cpu=8, price=2.0)
    fleet.node("n1", type="b", pods=[pod("p1", cpu=2)])
    fleet.node("n2", type="b", pods=[pod("p2", cpu=2)])
    fleet.node("n3", type="a", pods=[pod("p3", cpu=2)])

    def replacement():
        world = fleet.world()
        chosen = [candidate(world, name) for name in ("n1", "n2", "n3")]
        proposal = propose(world, fleet.simulation(), chosen, Method.MULTI_NODE)
        assert not isinstance(proposal, Blocker)
        return without_same_type(world, chosen, proposal)

    assert replacement().why is Why.SAME_TYPE
    fleet.type("z", cpu=8, price=0.5)
    assert replacement().command.replacements[0].instance_types == ("z",)


@pytest.mark.promise("DIS-6.2", "DIS-18.6")
def test_acceptance_6_destination_inside_its_window_is_not_filled():
    """A machine that is settling is left to settle; a new machine is allowed."""
    fleet = fleet_of(after="10m")
    fleet.node("a", type="l", pods=[pod("x", cpu=1)])
    fleet.node("busy", type="l", pods=[pod("y", cpu=1)], consolidatable=False, last_pod_event=NOON - 60)
    command = asked(fleet, "a").command
    assert command.decision is Decision.REPLACE
    fleet.node("busy", type="l", pods=[pod("y", cpu=1)], last_pod_event=NOON - 3600)
    assert asked(fleet, "a").command.decision is Decision.DELETE


@pytest.mark.promise("DIS-6.2", "DIS-17.8", "DIS-6.5")
def test_pending_and_virtual_pods_may_use_a_machine_inside_its_window():
    """The window protects machines from being filled by us, not from work that needs a place."""
    fleet = fleet_of(after="10m")
    fleet.node("a", pods=[pod("x", cpu=1)])
    fleet.node("b", pods=[pod("z", cpu=1)])
    fleet.node("busy", type="l", consolidatable=False, last_pod_event=NOON - 60)
    fleet.pending.append(pending("waiting", cpu=5))
    fleet.buffer_pods.append(pending("virtual", cpu=2))
    command = asked(fleet, "a").command
    assert command.decision is Decision.DELETE
    assert {p.node: p.pods for p in command.placements} == {"b": ("default/x",), "busy": ("default/waiting",)}


@pytest.mark.promise("DIS-6.2")
def test_pod_that_has_not_started_may_go_to_a_machine_inside_its_window():
    """It is bound but still pending, so moving it disturbs nobody."""
    fleet = fleet_of(after="10m")
    fleet.node("a", pods=[pod("starting", phase="Pending")])
    fleet.node("busy", type="l", pods=[pod("y", cpu=1)], consolidatable=False, last_pod_event=NOON - 60)
    command = asked(fleet, "a").command
    assert command.decision is Decision.DELETE
    assert [(p.node, p.pods) for p in command.placements] == [("busy", ("default/starting",))]


@pytest.mark.promise("DIS-6.2")
@pytest.mark.parametrize("after", ["Never", "0s"])
def test_pool_without_a_window_is_a_destination_at_any_time(after):
    """`Never` keeps machines where they are; it does not keep pods out of them."""
    fleet = fleet_of()
    fleet.pool("kept", after=after, budgets=["100%"])
    fleet.node("a", pods=[pod("x")])
    fleet.node("busy", pool="kept", type="l", consolidatable=False, pods=[pod("y")], last_pod_event=NOON - 1)
    assert asked(fleet, "a").command.decision is Decision.DELETE


@pytest.mark.promise("DIS-6.4", "DIS-18.8")
def test_acceptance_8_pending_pod_that_needs_a_new_machine_counts_as_one():
    """The price comparison would otherwise be wrong."""
    fleet = fleet_of()
    fleet.node("a", type="l", pods=[pod("x", cpu=3)])
    fleet.pending.append(pending("waiting", cpu=8))
    assert asked(fleet, "a").why is Why.TOO_MANY_REPLACEMENTS
    fleet.pending[:] = [pending("hopeless", cpu=64)]
    assert asked(fleet, "a").command.decision is Decision.REPLACE


@pytest.mark.promise("DIS-7.1")
def test_policy_when_empty_leaves_machines_in_use_alone():
    """It says so."""
    fleet = fleet_of(policy="WhenEmpty")
    fleet.node("a", type="l", pods=[pod("x")])
    run = single_node.run(fleet.world(), fleet.simulation(), never)
    assert run.commands == ()
    expected = 'NodePool "default" has consolidation policy WhenEmpty, but node is not empty'
    assert run.notices[0].message == expected


@pytest.mark.promise("DIS-7.6")
def test_multi_node_finds_the_longest_prefix():
    """Four quarter-full machines become one."""
    fleet = fleet_of()
    for index in range(4):
        fleet.node(f"n{index}", type="m", pods=[pod(f"p{index}", cpu=1)])
    run = multi_node.run(fleet.world(), fleet.simulation(), never)
    (command,) = run.commands
    # Three of them fit on the fourth: a delete beats a replacement of all four by their own type.
    assert command.decision is Decision.DELETE
    assert len(command.targets) == 3


@pytest.mark.promise("DIS-7.6", "DIS-17.1")
def test_multi_node_never_takes_more_than_a_hundred():
    """Q1: a cap is a cap."""
    fleet = Fleet()
    fleet.type("m", cpu=4, price=1.0)
    fleet.type("huge", cpu=512, gi=2048, price=5.0)
    fleet.pool(budgets=["100%"])
    for index in range(120):
        fleet.node(f"n{index:03d}", pods=[pod(f"p{index}", cpu=4, gi=1)])
    simulation = fleet.simulation()
    (command,) = multi_node.run(fleet.world(), simulation, never).commands
    assert len(command.targets) == 100
    assert max(len(q.removed) for q in simulation.asked) == 100


@pytest.mark.promise("DIS-12.1", "DIS-17.9")
def test_search_that_ran_out_of_time_is_not_remembered_as_fruitless():
    """Q9: it has shown nothing."""
    fleet = fleet_of()
    for index in range(3):
        fleet.node(f"n{index}", pods=[pod(f"p{index}", cpu=4)])
    run = multi_node.run(fleet.world(), fleet.simulation(), lambda: True)
    assert run.timed_out
    assert not run.settled
    done = multi_node.run(fleet.world(), fleet.simulation(), never)
    assert done.settled


class Slow:
    """A simulation each of whose answers takes so many seconds of a clock that only it moves."""

    def __init__(self, fleet: Fleet, seconds: float) -> None:
        self.simulation = fleet.simulation()
        self.seconds = seconds
        self.now = 0.0

    def ask(self, question):
        self.now += self.seconds
        return self.simulation.ask(question)

    def is_late(self) -> bool:
        return self.now > 60.0


def half_full(machines: int) -> Fleet:
    """Machines of which all but one could go into the large one that is there already."""
    fleet = Fleet()
    fleet.type("m", cpu=4, price=1.0)
    fleet.type("huge", cpu=512, gi=2048, price=5.0)
    fleet.pool(budgets=["100%"])
    fleet.node("huge", type="huge", pods=[pod("stays", cpu=500)], annotations={labels.DO_NOT_DISRUPT: "true"})
    for index in range(machines):
        fleet.node(f"n{index}", pods=[pod(f"p{index}", cpu=1)])
    return fleet


@pytest.mark.promise("DIS-7.9")
def test_multi_node_deadline_inside_a_simulation_ends_the_search():
    """An answer that was broken off may lack pods or machines, so neither its yes nor its no counts."""
    fleet = half_full(6)
    late = Slow(fleet, seconds=61.0)
    run = multi_node.run(fleet.world(), late, late.is_late)
    assert run.timed_out
    assert not run.commands
    assert not run.settled
    assert len(late.simulation.asked) == 1


@pytest.mark.promise("DIS-7.9")
def test_multi_node_deadline_keeps_the_set_that_was_found_before_it():
    """What was proved in time is used."""
    fleet = half_full(6)
    full = multi_node.run(fleet.world(), fleet.simulation(), never)
    assert len(full.commands[0].targets) == 6
    late = Slow(fleet, seconds=40.0)
    run = multi_node.run(fleet.world(), late, late.is_late)
    assert run.timed_out
    assert len(run.commands[0].targets) == 4
    assert len(late.simulation.asked) == 2


@pytest.mark.promise("DIS-7.9")
def test_question_tells_the_engine_when_nobody_waits_any_more(engine):
    """The minute bounds the simulation itself, not only the pauses between simulations."""
    fleet = half_full(6)
    simulation = fleet.simulation()
    multi_node.run(fleet.world(), simulation, never)
    question = dataclasses.replace(simulation.asked[0], should_stop=lambda: True)
    if engine == "fast":
        answer = fleet.simulation().ask(question)
        assert not answer.existing
        assert not answer.claims
        assert all("ran out of time" in text for text in answer.failed.values())
    assert simulation.asked[0].should_stop is never


@pytest.mark.promise("DIS-12.1")
def test_search_limited_by_budgets_is_not_remembered_as_fruitless():
    """A budget may open at any moment."""
    fleet = fleet_of(budgets=["1"])
    for index in range(3):
        fleet.node(f"n{index}", pods=[pod(f"p{index}", cpu=4)])
    assert not multi_node.run(fleet.world(), fleet.simulation(), never).settled


@pytest.mark.promise("DIS-12.1")
def test_fleet_without_candidates_is_not_remembered_as_fruitless():
    """Nothing was asked; what opens a candidate, as a PodDisruptionBudget, need not change anything else."""
    fleet = fleet_of()
    fleet.node("a", pods=[pod("x", match={"app": "web"})])
    fleet.pdb("web", {"app": "web"}, allowed=0)
    plan = decide(fleet.world(), fleet.simulation(), stamp=7.0)
    assert not any(run.settled for run in plan.runs)
    assert not single_node.run(fleet.world(), fleet.simulation(), never).settled


@pytest.mark.promise("DIS-12.1")
def test_settled_method_is_not_asked_again_until_the_cluster_changes():
    """A quiet cluster costs nothing."""
    fleet = fleet_of()
    fleet.node("a", pods=[pod("x", cpu=4)])
    plan = decide(fleet.world(), fleet.simulation(), stamp=7.0)
    assert all(run.settled for run in plan.runs if run.method in (Method.MULTI_NODE, Method.SINGLE_NODE))
    fleet.memory = Memory(nothing_at={Method.MULTI_NODE: 7.0, Method.SINGLE_NODE: 7.0})
    simulation = fleet.simulation()
    decide(fleet.world(), simulation, stamp=7.0)
    assert simulation.asked == []
    decide(fleet.world(), simulation, stamp=8.0)
    assert simulation.asked


@pytest.mark.promise("DIS-7.8")
def test_single_node_takes_turns_between_pools():
    """One crowded pool must not starve the others."""
    fleet = fleet_of()
    fleet.pool("other", budgets=["100%"])
    for name in ("a1", "a2", "a3"):
        fleet.node(name, type="l", pods=[pod(name)])
    fleet.node("b1", pool="other", pods=[pod("b1")])
    world = fleet.world()
    chosen = [candidate(world, name) for name in ("a1", "a2", "a3", "b1")]
    assert [c.name for c in taking_turns(chosen, ())] == ["a1", "b1", "a2", "a3"]
    assert [c.name for c in taking_turns(chosen, ("other",))] == ["b1", "a1", "a2", "a3"]


@pytest.mark.promise("DIS-7.8")
def test_pools_not_reached_in_time_are_remembered():
    """They come first in the next run."""
    fleet = fleet_of()
    fleet.pool("other", budgets=["100%"])
    fleet.node("a", pods=[pod("x", cpu=4)])
    fleet.node("b", pool="other", pods=[pod("y", cpu=4)])
    answers = iter([False, True])
    run = single_node.run(fleet.world(), fleet.simulation(), lambda: next(answers))
    assert run.timed_out
    assert run.unseen_pools == ("other",)


def balanced_fleet(pods: int) -> Fleet:
    fleet = Fleet()
    fleet.type("m", cpu=16, price=1.0)
    fleet.type("s", cpu=8, price=0.9)
    fleet.pool(budgets=["100%"], policy="Balanced")
    fleet.node("a", pods=[pod(f"a{i}", cpu=0.5) for i in range(pods)])
    fleet.node("b", pods=[pod(f"b{i}", cpu=16 / pods) for i in range(pods)])
    return fleet


@pytest.mark.promise("DIS-9.1", "DIS-9.4")
def test_balanced_refuses_much_disturbance_for_little_money():
    """A tenth of the price for half of the pods is churn."""
    fleet = balanced_fleet(8)
    run = single_node.run(fleet.world(), fleet.simulation(), never)
    assert run.commands == ()
    assert run.scores[0][:2] == ("default", False)
    refused = single_node.evaluate(
        fleet.world(), fleet.simulation(), candidate(fleet.world(), "a"), Scales(fleet.world()), [], []
    )
    assert "score 0.10 < threshold 0.50 (k: 2, savings 5.0%, disruption 50.0%)" in refused.message
    assert {n.reason for n in run.notices} == {"ConsolidationCandidate"}, "a score is told by metrics alone"


@pytest.mark.promise("DIS-9.1")
def test_balanced_takes_a_fair_trade():
    """Half the cost for a small share of the pods."""
    fleet = balanced_fleet(8)
    fleet.type("s", cpu=8, price=0.1)
    (command,) = single_node.run(fleet.world(), fleet.simulation(), never).commands
    assert command.nodes == ("a",)
    assert command.scores[0][1] == pytest.approx(0.9)


@pytest.mark.promise("DIS-9.1")
def test_balanced_does_not_simulate_what_cannot_pass():
    """Even deleting the machine would not be worth its pods."""
    fleet = Fleet()
    fleet.type("cheap", cpu=64, price=0.1)
    fleet.type("dear", cpu=4, price=9.9)
    fleet.pool(budgets=["100%"], policy="Balanced")
    fleet.node("crowded", type="cheap", pods=[pod(f"p{i}", cpu=0.1) for i in range(50)])
    fleet.node("dear", type="dear", pods=[pod("x", cpu=4)])
    world = fleet.world()
    assert not Scales(world).could_pass(candidate(world, "crowded"))
    assert Scales(world).could_pass(candidate(world, "dear"))


def two_balanced_pools() -> Fleet:
    fleet = Fleet()
    fleet.type("m", cpu=16, price=1.0)
    fleet.type("l", cpu=16, price=3.0)
    fleet.pool("cheap", budgets=["100%"], policy="Balanced")
    fleet.pool("dear", budgets=["100%"], policy="Balanced")
    fleet.pool("plain", budgets=["100%"])
    fleet.node("c", pool="cheap", pods=[pod("c1")])
    fleet.node("d", pool="dear", type="l", pods=[pod("d1")])
    fleet.node("p", pool="plain", pods=[pod("p1")])
    return fleet


@pytest.mark.promise("DIS-9.2")
def test_saving_over_several_pools_is_split_by_what_they_cost():
    """Each pool is judged by its own part; pools of other policies are not judged."""
    world = two_balanced_pools().world()
    verdicts = Scales(world).verdicts([candidate(world, name) for name in ("c", "d", "p")], saving=2.5)
    assert [(v.pool, v.saving_share, v.disruption_share) for v in verdicts] == [
        ("cheap", pytest.approx(0.5), 1.0),
        ("dear", pytest.approx(0.5), 1.0),
    ]
    assert all(verdict.approved for verdict in verdicts)


@pytest.mark.promise("DIS-9.3")
def test_balanced_approves_nothing_that_it_cannot_compare():
    """No saving, no cost or no disturbance: no."""
    fleet = two_balanced_pools()
    world = fleet.world()
    chosen = [candidate(world, "c")]
    assert [v.approved for v in Scales(world).verdicts(chosen, saving=0.0)] == [False]
    assert [v.approved for v in Scales(world).verdicts(chosen, saving=-1.0)] == [False]
    fleet.type("m", cpu=16, price=0.0)
    world = fleet.world()
    assert [v.approved for v in Scales(world).verdicts([candidate(world, "c")], saving=1.0)] == [False]


@pytest.mark.promise("DIS-17.7")
def test_every_node_of_the_pool_counts_in_its_disturbance():
    """Q7: candidates or not, and whatever was written to their claims meanwhile."""
    fleet = balanced_fleet(8)
    before = Scales(fleet.world()).totals["default"].disruption
    assert before == pytest.approx(18.0)
    fleet.node("a", pods=[pod(f"a{i}", cpu=0.5) for i in range(8)], consolidatable=False, last_pod_event=NOON)
    fleet.node("b", pods=[pod(f"b{i}", cpu=2) for i in range(8)], annotations={labels.DO_NOT_DISRUPT: "true"})
    assert Scales(fleet.world()).totals["default"].disruption == before


@pytest.mark.promise("DIS-8.7", "DIS-16.1")
def test_single_node_tells_what_it_found_and_why_not():
    """Found replacements are announced, deletes are not, refusals carry their reason on Node and NodeClaim."""
    fleet = fleet_of()
    fleet.node("a", pods=[pod("x", cpu=4)])
    run = single_node.run(fleet.world(), fleet.simulation(), never)
    (notice,) = run.notices
    assert (notice.kind, notice.name, notice.claim, notice.reason) == ("Node", "a", "claim-a", "Unconsolidatable")
    assert notice.message == "Can't replace with a cheaper node ($1.0000/h now, $1.0000/h at best)"
    fleet.node("a", type="l", pods=[pod("x", cpu=3)])
    run = single_node.run(fleet.world(), fleet.simulation(), never)
    (notice,) = run.notices
    assert notice.reason == "ConsolidationCandidate"
    assert notice.message.startswith("Consolidation candidate: Underutilized/replace: a (l/on-demand) -> m/on-demand")
    assert notice.message.endswith("(savings: $1.00)")
    fleet.node("b", type="l", pods=[pod("y")])
    assert single_node.run(fleet.world(), fleet.simulation(), never).notices == ()
    fleet.node("odd", type="vanished", pods=[pod("z")])
    fleet.node("blank", zone="", pods=[pod("w")])
    told = {n.name: n.message for n in single_node.run(fleet.world(), fleet.simulation(), never).notices}
    assert told["odd"] == 'Instance Type "vanished" not found'
    assert told["blank"] == f'Node does not have label "{labels.ZONE}"'


@pytest.mark.promise("DIS-16.4")
def test_events_repeat_as_seldom_as_users_expect():
    """Two minutes by default, fifteen for what seldom changes, one for budgets."""
    fleet = fleet_of(budgets=["0"])
    fleet.node("a", pods=[pod("x", cpu=4)])
    fleet.node("kept", annotations={labels.DO_NOT_DISRUPT: "true"})
    fleet.node("odd", type="vanished", pods=[pod("z")])
    windows = {n.name: n.window_s for n in multi_node.run(fleet.world(), fleet.simulation(), never).notices}
    assert windows == {"kept": 120.0, "odd": 900.0, "default": 60.0}


def test_minimum_saving_holds_back_pennies():
    """The setting is off by default."""
    fleet = fleet_of()
    fleet.node("a", pods=[pod("x", cpu=1)])
    assert asked(fleet, "a").command.saving == pytest.approx(0.5)
    assert asked(fleet, "a", min_saving=0.6).why is Why.MIN_SAVING


def test_s15_same_snapshot_gives_the_same_plan():
    """A decision is a function of what it was given."""
    fleet = fleet_of()
    for index in range(6):
        fleet.node(f"n{index}", pods=[pod(f"p{index}", cpu=1)])
    first = decide(fleet.world(), fleet.simulation())
    fleet.nodes = dict(reversed(fleet.nodes.items()))
    assert decide(fleet.world(), fleet.simulation()).commands == first.commands


@pytest.mark.promise("DIS-7.5", "DIS-12.1")
def test_pool_whose_replacement_failed_waits_but_still_gives_up_nodes():
    """A delete needs no replacement; a replacement is tried again later, without anything having changed."""
    fleet = fleet_of()
    fleet.node("a", type="l", pods=[pod("x", cpu=3)])
    fleet.memory = Memory(back_off_until={"default": NOON + 60})
    assert asked(fleet, "a").why is Why.BACK_OFF
    run = single_node.run(fleet.world(), fleet.simulation(), never)
    assert run.commands == ()
    assert not run.settled
    fleet.node("b", type="l", pods=[pod("y", cpu=1)])
    assert asked(fleet, "a").command.decision is Decision.DELETE


def test_every_method_that_ran_says_how_long_it_took():
    """The slow method must be seen among the quick ones."""
    ticks = itertools.count()
    fleet = fleet_of()
    fleet.node("a", pods=[pod("x", cpu=4)])
    plan = decide(fleet.world(), fleet.simulation(), timer=lambda: float(next(ticks)))
    assert len(plan.runs) > 1
    assert {run.seconds for run in plan.runs} == {1.0}
