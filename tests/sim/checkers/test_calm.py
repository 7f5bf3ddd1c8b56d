"""The checker of moves notices a pod that is moved again too early, and is not fooled by other pods."""

from __future__ import annotations

from pykarpenter.api.manifests import read_documents
from pykarpenter.core.disruption import calm
from pykarpenter.runtime.settings import Settings
from pykarpenter.sim.checkers.calm import MoveLedger
from pykarpenter.sim.simulate.run import Summary, simulate
from pykarpenter.sim.simulate.scenario import read_scenario

HOUR = 3600.0


def ledger_after_one_move(gain: float = 0.02) -> MoveLedger:
    """Two pods of one owner moved for `gain`; their successors are there, and one more pod."""
    ledger = MoveLedger(price=0.01)
    assert ledger.moved(0.0, [("a", "rs"), ("b", "rs")], gain) == ""
    for uid in ("a2", "b2", "c"):
        ledger.created(uid, "rs")
    return ledger


def test_a_successor_that_moves_before_its_move_is_paid_back_needs_a_gain_for_both():
    """Two pods at $0.01/h over a day are paid back after 24 hours of $0.02/h."""
    assert "2 of 2 pods" in ledger_after_one_move().moved(23 * HOUR, [("a2", "rs"), ("b2", "rs")], 0.03)
    assert ledger_after_one_move().moved(23 * HOUR, [("a2", "rs"), ("b2", "rs")], 0.04) == ""
    assert ledger_after_one_move().moved(25 * HOUR, [("a2", "rs"), ("b2", "rs")], 0.02) == ""


def test_a_large_gain_is_paid_back_sooner():
    assert ledger_after_one_move(gain=0.48).moved(1.1 * HOUR, [("a2", "rs")], 0.01) == ""
    assert ledger_after_one_move(gain=0.48).moved(0.9 * HOUR, [("a2", "rs")], 0.01) != ""


def test_pods_that_stand_for_no_move_are_free_to_go():
    """Only as many pods are successors as were moved, in order of creation."""
    ledger = ledger_after_one_move()
    assert ledger.moved(HOUR, [("c", "rs"), ("d", "other")], 0.02) == ""
    assert ledger.moved(HOUR, [("a2", "rs")], 0.01) != ""


# A service that shrinks step by step: each step frees a little, and everything is tempted to move again.
SHRINKING = """
apiVersion: pykarpenter.sh/v1alpha1
kind: Scenario
metadata: {name: shrinking}
spec:
  duration: 90m
  objects:
    - apiVersion: karpenter.sh/v1
      kind: NodePool
      metadata: {name: general}
      spec:
        disruption: {consolidateAfter: 30s, budgets: [{nodes: "100%"}]}
        template:
          spec:
            requirements:
              - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
              - {key: karpenter.kwok.sh/instance-cpu, operator: In, values: ["2", "4", "8"]}
    - apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web}
      spec:
        replicas: 20
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 900m, memory: 1Gi}}}]}
  waves:
    - {deployment: web, low: 2, high: 20, period: 3h, peak: 1m, every: 8m}
"""


def simulated(**settings) -> Summary:
    documents = read_documents(SHRINKING, "shrinking")
    chosen = Settings(disable_leader_election=True, **settings)
    return simulate(read_scenario(documents), seed=1, settings=chosen).summary


def test_without_the_pay_back_rule_pods_move_again_and_again_and_the_checker_says_so(monkeypatch):
    """Turning the guard off must be noticed, or a green run proves nothing."""
    calmly = simulated(eviction_price=0.02)
    assert calmly.violations == ()
    monkeypatch.setattr(calm, "counted", lambda *_: 0.0)
    restless = simulated(eviction_price=0.02)
    assert any(text.startswith("CALM") for text in restless.violations)
    assert restless.evictions > calmly.evictions


def test_with_the_best_sets_no_pod_moves_again_too_early():
    """Larger sets are judged by the same rule."""
    found = simulated(consolidation_search="best")
    assert found.violations == () and found.evictions > 0
