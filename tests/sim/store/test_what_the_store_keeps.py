"""A store lives for weeks of simulated time: what is gone leaves nothing behind (F38)."""

import gc

from pykarpenter.sim.store.requests import DeleteRequest
from pykarpenter.sim.store.selectors import FieldTerm

from .world import World, pod_spec


def test_f38_nodes_that_pods_ran_on_are_forgotten_with_their_last_pod():
    """Nodes have new names each time."""
    world = World()
    for number in range(50):
        world.create("pods", f"p-{number}", spec=pod_spec(nodeName=f"node-{number}"))
        assert world.names("pods", field_selector=f"spec.nodeName=node-{number}") == [f"p-{number}"]
        world.delete("pods", f"p-{number}", DeleteRequest(grace_period_s=0))
    assert world.store.table("", "pods")._by_node == {}


def test_f38_selectors_that_name_nodes_are_not_collected():
    """Each drain lists the pods of one node, and the node is gone afterwards."""
    world, before = World(), _terms_held()
    for number in range(50):
        assert world.names("pods", field_selector=f"spec.nodeName=node-{number}") == []
    assert _terms_held() <= before


def _terms_held() -> int:
    """Of the whole process, in which other tests may have left watches behind."""
    gc.collect()
    return sum(type(obj) is FieldTerm for obj in gc.get_objects())
