"""Jobs: pods until enough have succeeded (each number once, when indexed), or too many have failed."""

from __future__ import annotations

from collections.abc import Iterable

from pykarpenter.api import kinds
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import format_timestamp, parse_timestamp
from pykarpenter.kube.cache import Change
from pykarpenter.kube.contract import DeleteOptions, Json
from pykarpenter.sim.views import JOB, RawObject, controller_uid
from pykarpenter.sim.workloads.owned_pods import OwnedPods, is_ready
from pykarpenter.sim.workloads.part import SETTLE_S, Part, World

INDEX = "batch.kubernetes.io/job-completion-index"


class Jobs(Part):
    def __init__(self, world: World, pods: OwnedPods) -> None:
        super().__init__("job", world)
        self._pods = pods
        self._jobs = self.views.of(JOB)
        self._jobs.add_index("uid", lambda item: (item.uid,))
        # Pods that ended or were taken away, by job UID and pod UID: a deleted pod must stay counted.
        self._ended: dict[str, dict[str, str]] = {}
        # Numbers of indexed jobs that have succeeded, by job UID.
        self._done: dict[str, dict[int, None]] = {}
        self.views.on_change(JOB, self._job_changed)
        self.views.on_change(kinds.POD, self._pod_changed)

    def _job_changed(self, change: Change[RawObject]) -> None:
        if change.new is None:
            assert change.old is not None
            self._ended.pop(change.old.uid, None)
            self._done.pop(change.old.uid, None)
        elif change.old is None or change.old.spec != change.new.spec:
            self.queue.enqueue(change.new.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        uid = controller_uid(pod)
        owners = self._jobs.index("uid", uid)
        if not owners:
            return
        ended = self._ended.setdefault(uid, {})
        if pod.status.phase == "Succeeded":
            ended[pod.uid] = "succeeded"
            if (index := index_of(pod)) is not None:
                self._done.setdefault(uid, {})[index] = None
        elif pod.status.phase == "Failed" or pod.is_deleting or change.new is None:
            # A pod that is taken away before it succeeded counts as a failure, as in Kubernetes.
            ended.setdefault(pod.uid, "failed")
        for owner in owners:
            self.queue.enqueue_after(owner.key, 0.0 if change.new is None else SETTLE_S)

    async def reconcile(self, key: str) -> float | None:
        job = self._jobs.get(key)
        if job is None or job.is_deleting:
            return None
        if finished_condition(job) is not None:
            return await self._expire(job)
        ended = self._ended.get(job.uid, {})
        succeeded = sum(outcome == "succeeded" for outcome in ended.values())
        failed = len(ended) - succeeded
        if is_indexed(job):
            succeeded = len(self._done.get(job.uid, {}))
        active = self._pods.active(job.uid)
        condition = self._verdict(job, succeeded, failed)
        if condition is not None or job.spec.get("suspend"):
            for pod in active:
                await self._pods.delete(pod)
            active = []
        else:
            await self._start_pods(job, active, succeeded)
            active = self._pods.active(job.uid)
        await self._report(job, active, succeeded, failed, condition)
        return None

    def _verdict(self, job: RawObject, succeeded: int, failed: int) -> Json | None:
        if succeeded >= completions(job):
            return self._condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        if failed > int(job.spec.get("backoffLimit", 6)):
            return self._condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        return None

    async def _start_pods(self, job: RawObject, active: list[Pod], succeeded: int) -> None:
        running = len(active) + self._pods.unseen(job.uid)
        left = completions(job) - succeeded
        missing = min(int(job.spec.get("parallelism", 1)), left) - running
        free = self._free_indexes(job, active) if is_indexed(job) else [None] * max(0, missing)
        for index in free[: max(0, missing)]:
            await self._pods.create(JOB, job, job.spec["template"], _changes(job, index))
        if missing < 0:
            for pod in sorted(active, key=lambda p: (bool(p.spec.node_name), p.name))[:-missing]:
                await self._pods.delete(pod)

    def _free_indexes(self, job: RawObject, active: list[Pod]) -> list[int | None]:
        """Numbers that have not succeeded and that no pod works on, lowest first."""
        busy = {index_of(pod) for pod in active}
        # `<job>-<index>-<letters>`: pods that were created and have not been seen yet.
        busy.update(int(key.rsplit("-", 2)[1]) for key in self._pods.unseen_keys(job.uid))
        done = self._done.get(job.uid, {})
        return [i for i in range(completions(job)) if i not in done and i not in busy]

    async def _report(
        self, job: RawObject, active: list[Pod], succeeded: int, failed: int, condition: Json | None
    ) -> None:
        now = format_timestamp(self.clock.now())
        status: Json = {
            "active": len(active) + self._pods.unseen(job.uid),
            "ready": sum(is_ready(pod) for pod in active),
            "succeeded": succeeded,
            "failed": failed,
            "startTime": job.status.get("startTime") or now,
        }
        if is_indexed(job):
            status["completedIndexes"] = spans(self._done.get(job.uid, {}))
        if condition is not None:
            status["conditions"] = [*job.status.get("conditions", []), condition]
            if condition["type"] == "Complete":
                status["completionTime"] = now
            ttl = job.spec.get("ttlSecondsAfterFinished")
            if ttl is not None:
                self.queue.enqueue_after(job.key, float(ttl) + 1.0)
        await self.write_status(JOB, self._jobs.get(job.key) or job, status)

    async def _expire(self, job: RawObject) -> float | None:
        """Delete a finished job once its time to live is over."""
        ttl = job.spec.get("ttlSecondsAfterFinished")
        condition = finished_condition(job)
        if ttl is None or condition is None:
            return None
        left = parse_timestamp(condition["lastTransitionTime"]) + float(ttl) - self.clock.now()
        if left > 0:
            return left
        await self.api.delete(JOB, job.name, job.namespace, DeleteOptions(propagation="Background"))
        return None

    def _condition(self, kind: str, reason: str, message: str) -> Json:
        now = format_timestamp(self.clock.now())
        return {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastProbeTime": now,
            "lastTransitionTime": now,
        }


def _changes(job: RawObject, index: int | None) -> Json:
    labels = {
        "batch.kubernetes.io/controller-uid": job.uid,
        "batch.kubernetes.io/job-name": job.name,
        "controller-uid": job.uid,
        "job-name": job.name,
    }
    if index is None:
        return {"metadata": {"labels": labels}}
    numbered = {**labels, INDEX: str(index)}
    name = f"{job.name}-{index}"
    return {
        "metadata": {"labels": numbered, "annotations": {INDEX: str(index)}, "generateName": f"{name}-"},
        "spec": {"hostname": name},
    }


def is_indexed(job: RawObject) -> bool:
    return job.spec.get("completionMode") == "Indexed"


def index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdigit() else None


def spans(numbers: Iterable[int]) -> str:
    """Numbers as a Job's status shows them: `0-3,5`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def completions(job: RawObject) -> int:
    return int(job.spec.get("completions", job.spec.get("parallelism", 1)))


def finished_condition(job: RawObject) -> Json | None:
    for condition in job.status.get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return dict(condition)
    return None
