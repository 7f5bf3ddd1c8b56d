"""Keeps expectations in step with machines: whoever gains or loses a pod that waits is described anew.

A pod that waits for a NodeClaim counts on that claim's machine, and no longer on the one it may still be bound to, so
both are touched by every change. Decides nothing: when an expectation begins or ends is for the callers to say.
"""

from __future__ import annotations

from pykarpenter.state.expectations import Expectations
from pykarpenter.state.machines import Machines, claim_id
from pykarpenter.state.pods import PodIndex


class Arrivals:
    def __init__(self, machines: Machines, pods: PodIndex) -> None:
        self._machines = machines
        self._pods = pods
        self._expected = Expectations()
        # Changes whenever a pod begins or ceases to wait.
        self.revision = 0

    def expect(self, claim: str, pods: list[tuple[str, str]]) -> None:
        """Let pods (key and UID) wait for the claim."""
        robbed = self._expected.expect(claim, pods)
        self.revision += 1
        for name in (claim, *robbed):
            self.touch(name)
        for key, _ in pods:
            self._touch_home(key)

    def forget_pod(self, key: str) -> None:
        claim = self._expected.forget_pod(key)
        if claim is not None:
            self.revision += 1
            self.touch(claim)
            self._touch_home(key)

    def forget_claim(self, claim: str) -> None:
        for key in self._expected.forget_claim(claim):
            self.revision += 1
            self._touch_home(key)

    def claim_of(self, key: str) -> str | None:
        """The claim that the pod waits for."""
        return self._expected.claim_of(key)

    def pods_of(self, claim: str) -> dict[str, str]:
        """UIDs of the pods that wait for the claim, by key."""
        return self._expected.pods_of(claim)

    def claims(self) -> list[str]:
        """Claims that pods wait for, sorted."""
        return self._expected.claims()

    def is_over(self, claim: str, now: float) -> bool:
        """For a machine that is ready: whether the scheduler had its time."""
        return self._expected.is_over(claim, now)

    def touch(self, claim: str) -> None:
        self._machines.dirty[claim_id(claim)] = None

    def _touch_home(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is not None and pod.spec.node_name:
            self._machines.touch_node(pod.spec.node_name)
