"""What is remembered of pods between plans: when each was first seen, when first decided about, and its claim.

Only for metrics and for waking pods early; losing it changes no decision.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykarpenter.api.pods import Pod


class PodTimes:
    def __init__(self) -> None:
        self._seen_at: dict[str, float] = {}
        self._decided: set[str] = set()
        self._claims: dict[str, str] = {}
        self._pods_of: dict[str, dict[str, None]] = {}

    def seen(self, pod: Pod, now: float) -> None:
        self._seen_at.setdefault(pod.uid, now)

    def decided(self, pod: Pod, now: float) -> float | None:
        """Seconds from first sight to the first decision; None for later decisions."""
        if pod.uid in self._decided or pod.uid not in self._seen_at:
            return None
        self._decided.add(pod.uid)
        return max(0.0, now - self._seen_at[pod.uid])

    def planned(self, claim: str, pods: Iterable[str]) -> None:
        """The claim is bought for these pods (by key)."""
        for key in pods:
            self._unplan(key)
            self._claims[key] = claim
            self._pods_of.setdefault(claim, {})[key] = None

    def waited_for(self, claim: str) -> list[str]:
        """Keys of the pods that the claim was bought for and that still wait; they wait for it no longer."""
        keys = sorted(self._pods_of.get(claim, ()))
        for key in keys:
            self._unplan(key)
        return keys

    def forget(self, pod: Pod) -> None:
        """The pod is bound, finished or gone."""
        self._seen_at.pop(pod.uid, None)
        self._decided.discard(pod.uid)
        self._unplan(pod.key)

    def _unplan(self, key: str) -> None:
        claim = self._claims.pop(key, None)
        if claim is not None:
            members = self._pods_of[claim]
            del members[key]
            if not members:
                del self._pods_of[claim]
