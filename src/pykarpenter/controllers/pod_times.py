"""When each pending pod was first seen and first decided about; only for metrics, losing it changes no decision."""

from __future__ import annotations

from pykarpenter.api.pods import Pod


class PodTimes:
    def __init__(self) -> None:
        self._seen_at: dict[str, float] = {}
        self._decided: set[str] = set()

    def seen(self, pod: Pod, now: float) -> None:
        self._seen_at.setdefault(pod.uid, now)

    def decided(self, pod: Pod, now: float) -> float | None:
        """Seconds from first sight to the first decision; None for later decisions."""
        if pod.uid in self._decided or pod.uid not in self._seen_at:
            return None
        self._decided.add(pod.uid)
        return max(0.0, now - self._seen_at[pod.uid])

    def is_decided(self, pod: Pod) -> bool:
        return pod.uid in self._decided

    def forget(self, pod: Pod) -> None:
        """The pod is bound, finished or gone."""
        self._seen_at.pop(pod.uid, None)
        self._decided.discard(pod.uid)
