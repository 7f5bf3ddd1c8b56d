"""What was bought for each pod, and when to stop buying: nothing may scale up for ever because of one pod.

Two things go wrong in loops. A claim is refused (no capacity) and planned again at once, thousands of times; after a
few refusals each further try waits longer. Or a machine is launched and still does not take or keep the pod it was
bought for (somebody taints it, the scheduler sees it differently, it never joins); after two such machines the pod,
or the workload whose pods were driven out, has to wait, half an hour at first (F1, F9, F25). Machines that served
and were then taken away are told by `losses`. A pod that waits hears why. Kept in memory: after a restart a pod may
get two more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pykarpenter.api.pods import Pod
from pykarpenter.controllers.provisioning.losses import Losses
from pykarpenter.core.reasons import Refusal, Why

FREE_REFUSALS = 5
LONGEST_REFUSAL_WAIT_S = 60.0
FREE_MACHINES = 2
FIRST_MISFIT_WAIT_S = 1800.0
LONGEST_MISFIT_WAIT_S = 4 * 3600.0
# A machine that loses its pods to a taint this soon after it was claimed never was of use.
YOUNG_S = 600.0


@dataclass(slots=True)
class _Record:
    """One pod's history; `claim` is the one it waits for now."""

    key: str
    # The controller that makes pods like it.
    workload: str
    claim: str = ""
    refused: int = 0
    refused_at: float = 0.0
    machines: list[str] = field(default_factory=list)
    # When the last of them was launched or lost.
    last_at: float = 0.0


@dataclass(slots=True)
class _Misfits:
    """Machines that a workload's pods were driven out of, and when last."""

    machines: list[str] = field(default_factory=list)
    at: float = 0.0

    def wait_left_s(self, now: float) -> float:
        return self.at + misfit_wait_s(len(self.machines)) - now


class Purchases:
    """By the pod's UID, so that a successor under the same name starts afresh; misfits by its controller too."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        self._misfits: dict[str, _Misfits] = {}
        self.losses = Losses()

    def planned(self, claim: str, pods: Iterable[Pod]) -> None:
        """The claim is bought for these pods."""
        for pod in pods:
            record = self._records.setdefault(pod.uid, _Record(pod.key, workload_of(pod)))
            self._unwait(pod.uid, record)
            record.claim = claim
            self._waiting.setdefault(claim, {})[pod.uid] = None

    def withdrawn(self, claim: str) -> None:
        """The claim was not created after all; that is nobody's failure."""
        for uid in list(self._waiting.get(claim, ())):
            self._unwait(uid, self._records[uid])

    def launched(self, claim: str, now: float) -> None:
        """The claim has a machine: each pod that waits for it has been bought one more."""
        for uid in self._waiting.get(claim, ()):
            record = self._records[uid]
            if claim not in record.machines:
                record.machines.append(claim)
                record.last_at = now

    def gone(self, claim: str, now: float) -> list[str]:
        """The claim is going or gone; returns the keys of the pods that waited for it."""
        keys = []
        for uid in list(self._waiting.get(claim, ())):
            record = self._records[uid]
            if claim in record.machines:
                record.last_at = now
            else:
                record.refused += 1
                record.refused_at = now
            self._unwait(uid, record)
            keys.append(record.key)
        return sorted(keys)

    def driven_out(self, pod: Pod, claim: str, now: float) -> None:
        """A young machine could not keep the pod: somebody's taint evicted it."""
        self._misfits = {
            owner: record for owner, record in self._misfits.items() if record.wait_left_s(now) > -LONGEST_MISFIT_WAIT_S
        }
        record = self._misfits.setdefault(workload_of(pod), _Misfits())
        if claim not in record.machines:
            record.machines.append(claim)
            record.at = now

    def kept(self, pod: Pod, claim: str) -> None:
        """The machine took this pod: others of its workload who waited for it only came too late, and start afresh."""
        owner = workload_of(pod)
        for uid in [uid for uid in self._waiting.get(claim, ()) if self._records[uid].workload == owner]:
            record = self._records[uid]
            record.machines.clear()
            self._unwait(uid, record)

    def forget(self, pod: Pod) -> None:
        """The pod is bound, finished or gone."""
        record = self._records.pop(pod.uid, None)
        if record is not None:
            self._unwait(pod.uid, record)

    def hold(self, pod: Pod, now: float) -> Refusal | None:
        """Why nothing more is bought for the pod now; None when it may be planned."""
        misfits = self._misfits.get(workload_of(pod))
        if misfits is not None and misfits.wait_left_s(now) > 0:
            return _misfit(misfits.machines, "did not keep pods of its workload", misfits.wait_left_s(now))
        record = self._records.get(pod.uid)
        if record is None:
            return self.hold_leaving(pod, now)
        left = record.last_at + misfit_wait_s(len(record.machines)) - now
        if left > 0:
            return _misfit(record.machines, "did not take it", left)
        if record.refused > FREE_REFUSALS:
            wait_s = min(2.0 ** (record.refused - FREE_REFUSALS), LONGEST_REFUSAL_WAIT_S)
            left = record.refused_at + wait_s - now
            if left > 0:
                text = f"{record.refused} launches for it were refused; next try in {left:.0f}s"
                return Refusal(Why.LAUNCH_BACK_OFF, text, details={"refused": record.refused})
        return self.hold_leaving(pod, now)

    def hold_leaving(self, pod: Pod, now: float) -> Refusal | None:
        """As `hold`, for a pod that runs on a machine that is going."""
        return self.losses.hold(workload_of(pod), now)

    def _unwait(self, uid: str, record: _Record) -> None:
        members = self._waiting.get(record.claim)
        if members is not None:
            members.pop(uid, None)
            if not members:
                del self._waiting[record.claim]
        record.claim = ""


def misfit_wait_s(machines: int) -> float:
    """How long to wait after that many machines in vain; the first two cost nothing."""
    if machines < FREE_MACHINES:
        return 0.0
    return float(min(FIRST_MISFIT_WAIT_S * 2 ** (machines - FREE_MACHINES), LONGEST_MISFIT_WAIT_S))


def workload_of(pod: Pod) -> str:
    """The UID of the controller that will replace the pod; the pod's own when there is none."""
    return next((owner.uid for owner in pod.metadata.owner_references if owner.controller), pod.uid)


def _misfit(machines: list[str], what: str, left_s: float) -> Refusal:
    listed = ", ".join(f"nodeclaim/{name}" for name in machines[-FREE_MACHINES:])
    text = f"{len(machines)} machines were launched for it and {what} ({listed}); next try in {left_s:.0f}s"
    return Refusal(Why.MISFIT, text, details={"machines": len(machines)})
