"""An engine lives for weeks: what it keeps for the next decision follows the cluster and does not add up (F38)."""

import gc

import pytest

from pykarpenter.api import labels
from pykarpenter.core.packing import PackingEngine, engine
from pykarpenter.core.packing.type_table import Selection, TypeTable
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.requirements import Requirement
from tests.support.builders import (
    affinity_term,
    apart,
    bound_pod,
    expression,
    make_node,
    make_pod,
    make_pods,
    make_pool,
    make_snapshot,
    make_type,
    spread,
)

SETTINGS = PackingSettings()
GENERATION = "example.com/generation"


def held(kind):
    """Of the whole process: what other tests left behind is in it too, so only differences say something."""
    gc.collect()
    return sum(type(obj) is kind for obj in gc.get_objects())


def test_f38_selections_of_a_pools_former_templates_are_let_go():
    """Each roll of a pool brings requirements of its own; those of a hundred rolls ago serve nobody."""
    kept, types = PackingEngine(), (make_type(), make_type("large", "16", "64Gi", price=4.0))
    before = {kind: held(kind) for kind in (Selection, Requirement)}
    sizes = []
    for roll in range(400):
        pool = make_pool(labels={GENERATION: f"g{roll}"})
        kept.pack(make_snapshot(make_pods(2), pools=[pool], types={pool.name: types}), SETTINGS)
        if roll % 100 == 99:
            sizes.append({kind: held(kind) - before[kind] for kind in before})
    assert all(sizes[-1][kind] <= 1.2 * sizes[1][kind] for kind in before)
    assert sizes[-1][Selection] < 200


def test_f38_masks_of_values_that_nobody_asks_for_any_more_are_let_go():
    """Lists of allowed types change with every template; a catalogue that stays must not remember them all."""
    types = tuple(make_type(f"type-{index}", price=1.0 + index) for index in range(12))
    kept, sizes = PackingEngine(), []
    for roll in range(300):
        # Another subset of the types each time.
        names = [item.name for index, item in enumerate(types) if (roll + 1) >> index & 1]
        pool = make_pool(requirements=[expression(labels.INSTANCE_TYPE, "In", *names)])
        kept.pack(make_snapshot([make_pod()], pools=[pool], types={pool.name: types}), SETTINGS)
        table = kept.supplies.table(types, SETTINGS.label_rules.well_known)
        sizes.append(len(table.type_keys[labels.INSTANCE_TYPE]._masks))
    assert max(sizes[150:]) <= max(sizes[:150]) < 100


def test_f38_tables_of_former_catalogues_are_let_go():
    """Prices and availability change all day, and each change is another catalogue."""
    kept, before, sizes = PackingEngine(), held(TypeTable), []
    for _ in range(20):
        pools = [make_pool("a"), make_pool("b")]
        kept.pack(make_snapshot([make_pod()], pools=pools, types=[make_type()]), SETTINGS)
        sizes.append(held(TypeTable) - before)
    # Those of this decision and of the one before.
    assert max(sizes) <= 4


def test_f38_labels_and_taints_of_pods_and_machines_that_are_gone_are_let_go():
    """Every Job has labels of its own, and each decision goes through all that are known."""
    kept, sizes = PackingEngine(), []
    for turn in range(200):
        jobs = [bound_pod(f"job-{turn}-{i}", "node-1", "10m", "1Mi", labels={"job": f"{turn}-{i}"}) for i in range(10)]
        kept.pack(make_snapshot([make_pod()], nodes=[make_node(pods=jobs)]), SETTINGS)
        sizes.append(len(kept.interner))
    assert max(sizes) <= engine.LEAST_INTERNED + 100


def test_f38_what_is_let_go_never_changes_a_decision(monkeypatch: pytest.MonkeyPatch):
    """Labels are given new numbers again and again; spreading and keeping apart must count the same pods."""
    monkeypatch.setattr(engine, "LEAST_INTERNED", 3)
    kept, own, numbered = PackingEngine(), {"app": "web"}, 0
    nodes = [make_node(f"node-{i}", zone=f"zone-{'abc'[i % 3]}", pods=_pods_of(i, 0)) for i in range(6)]
    for turn in range(40):
        changed = turn % len(nodes)
        nodes[changed] = make_node(f"node-{changed}", zone=f"zone-{'abc'[turn % 3]}", pods=_pods_of(changed, turn))
        batch = [
            *make_pods(3, "web", labels=own, topology_spread_constraints=[spread(labels.ZONE, own)]),
            *make_pods(2, "alone", labels=own, affinity=apart(affinity_term(labels.HOSTNAME, own))),
        ]
        snapshot = make_snapshot(batch, nodes=nodes)
        before = kept.interner
        assert kept.pack(snapshot, SETTINGS) == PackingEngine().pack(snapshot, SETTINGS)
        numbered += kept.interner is not before
    assert numbered >= 3


def _pods_of(node: int, turn: int) -> list:
    name = f"node-{node}"
    jobs = [bound_pod(f"job-{node}-{turn}-{i}", name, "10m", "1Mi", labels={"job": f"{node}-{turn}"}) for i in (0, 1)]
    web = [bound_pod(f"web-{node}-{i}", name, "100m", "1Mi", labels={"app": "web"}) for i in range((node + turn) % 3)]
    return [*jobs, *web]
