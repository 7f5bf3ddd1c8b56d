"""Pods that already have a machine coming: each waits for the NodeClaim that was bought for it.

Until that machine can take pods, planning the same pods again would buy a second one, or shuffle pods between
machines that were sized for others. So an expected pod counts as being on its machine. The expectation ends when the
pod is bound, leaves or changes its mind, when the machine goes away or turns out too small, and a short while after
the machine is ready, because from then on the scheduler decides. Losing expectations in a restart costs nothing but
a new plan onto the same machines.
"""

from __future__ import annotations

from collections.abc import Iterable

# Seconds that the scheduler gets to bind pods to a machine that became ready before they are planned anew.
BINDING_GRACE_S = 10.0


class Expectations:
    """Which pods (key and UID) wait for which NodeClaim."""

    def __init__(self) -> None:
        self._claim_of: dict[str, str] = {}
        self._pods_of: dict[str, dict[str, str]] = {}
        self._ends_at: dict[str, float] = {}

    def expect(self, claim: str, pods: Iterable[tuple[str, str]]) -> list[str]:
        """Let pods wait for the claim; returns the other claims that lost them."""
        robbed: dict[str, None] = {}
        for key, uid in pods:
            former = self._claim_of.get(key)
            if former is not None and former != claim:
                robbed[former] = None
                self._remove(key)
            self._claim_of[key] = claim
            self._pods_of.setdefault(claim, {})[key] = uid
        return list(robbed)

    def claim_of(self, key: str) -> str | None:
        return self._claim_of.get(key)

    def pods_of(self, claim: str) -> dict[str, str]:
        """UIDs of the pods that wait for the claim, by key."""
        return self._pods_of.get(claim, {})

    def forget_pod(self, key: str) -> str | None:
        """The claim that the pod waited for."""
        claim = self._claim_of.get(key)
        if claim is not None:
            self._remove(key)
        return claim

    def forget_claim(self, claim: str) -> list[str]:
        """The pods that waited for it, by key."""
        keys = list(self._pods_of.get(claim, ()))
        for key in keys:
            self._remove(key)
        return keys

    def claims(self) -> list[str]:
        return sorted(self._pods_of)

    def is_over(self, claim: str, now: float) -> bool:
        """For a machine that is ready: whether the scheduler had its time; the first call starts the clock."""
        return now >= self._ends_at.setdefault(claim, now + BINDING_GRACE_S)

    def _remove(self, key: str) -> None:
        claim = self._claim_of.pop(key)
        pods = self._pods_of[claim]
        del pods[key]
        if not pods:
            del self._pods_of[claim]
            self._ends_at.pop(claim, None)

    def __len__(self) -> int:
        return len(self._claim_of)
