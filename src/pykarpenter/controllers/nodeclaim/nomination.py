"""Tells kube-scheduler which waiting pods a machine was bought for, just before the machine lets pods in.

Machines of one plan open one after the other. Unasked, the scheduler fills the first of them with whatever waits, and
a pod that could run anywhere takes the room of one that can run only there; a second machine must be bought for it.
So the pods that are expected on a machine get its name as `status.nominatedNodeName`, for which the scheduler keeps
room against others of the same or a lower priority. It clears the name itself when a try fails, and until the machine
is ready the pod is named again.

A hint and no more: nothing waits for it, nothing fails without it, and it is lost in a restart. It never touches a pod
that is bound, that leaves, that another scheduler looks after or that somebody else nominated; each write carries the
version it was decided on. A name that no longer helps is taken back, because such a pod gets no machine meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pykarpenter.api import kinds
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.core.draining import is_terminal
from pykarpenter.core.lifecycle import Phase, phase_of
from pykarpenter.kube.errors import ApiError, Conflict, Forbidden, NotFound
from pykarpenter.runtime.controller import Controller, Result
from pykarpenter.runtime.limits import TokenBucket
from pykarpenter.runtime.logs import get_logger

NAME = "nodeclaim.nomination"
RECHECK_S = 10.0
# The longest that a machine waits for its pods to be named.
PATIENCE_S = 2.0
# Times that a pod may change under our hands, and that a name may be cleared before the machine opens.
TRIES = 5
PASSES = 3
# Of the requests that the program may make: in a burst of thousands of pods, machines matter more than hints.
SHARE = 4
_SCHEDULERS = ("", "default-scheduler")


@dataclass(slots=True)
class _Nomination:
    """A pod that should have a machine's name; `seen` once it had it, `until` when the machine is ready.

    Before the machine opens, registration does the naming; `changed` wakes it when another version of the pod comes.
    """

    uid: str
    claim: str
    node: str
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_opening: bool = True
    seen: bool = False
    until: float | None = None


class PodNominations:
    """Controller `nodeclaim.nomination`, and what registration asks before it opens a machine."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._pods = ctx.caches.of(kinds.POD)
        self._nodes = ctx.caches.of(kinds.NODE)
        self._claims = ctx.caches.of(kinds.NODE_CLAIM)
        self._made: dict[str, _Nomination] = {}
        self._is_allowed = ctx.settings.nominate_pods
        settings = ctx.settings
        self._bucket = TokenBucket(settings.kube_client_qps / SHARE, settings.kube_client_burst // SHARE * 2, ctx.clock)
        self._log = get_logger(controller=NAME)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, clock=ctx.clock, workers=ctx.settings.workers(10, 100)
        )
        ctx.caches.subscribe(kinds.POD, self._pod_changed)
        ctx.caches.subscribe(kinds.NODE, self._node_changed)

    async def run(self) -> None:
        await self.controller.run()

    async def nominate(self, claim: NodeClaim, node: Node) -> None:
        """Name the machine in the pods it was bought for; nothing that goes wrong holds the machine up."""
        if not self._is_allowed:
            return
        waiting = [self._pods.get(key) for key in self._ctx.state.expected_pods(claim.name)]
        chosen = sorted((pod for pod in waiting if pod is not None and _is_free(pod)), key=_bound_first)
        made = {pod.key: _Nomination(pod.uid, claim.name, node.name) for pod in chosen}
        self._made.update(made)
        try:
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(PASSES):
                    await asyncio.gather(*(self._hold(key, item) for key, item in made.items()))
                    if not any(self._is_unnamed(key, item) for key, item in made.items()):
                        break
        except TimeoutError:
            self._log.info("naming a machine in its pods takes too long; it opens without", nodeclaim=claim.name)
        finally:
            for key, nomination in made.items():
                nomination.is_opening = False
                self.controller.enqueue(key)

    async def reconcile(self, key: str) -> Result | None:
        """Name the pod again or take the name back, whichever is due."""
        made, pod = self._made.get(key), self._pods.get(key)
        if made is None or made.is_opening:
            return None
        if pod is None or pod.uid != made.uid or pod.spec.node_name or pod.is_deleting:
            del self._made[key]
            return None
        named = pod.status.nominated_node_name
        made.seen = made.seen or named == made.node
        if named and named != made.node:
            del self._made[key]
            return None
        if not self._is_wanted(key, made, named):
            del self._made[key]
            if named:
                await self._take_back(pod)
            return None
        if not named:
            await self._name(pod, made.node)
        return Result(requeue_after_s=RECHECK_S)

    def _is_wanted(self, key: str, made: _Nomination, named: str) -> bool:
        node, claim = self._nodes.get(made.node), self._claims.get(made.claim)
        if node is None or node.is_deleting or claim is None or claim.is_deleting:
            return False
        if key not in self._ctx.state.expected_pods(made.claim):
            return False
        if phase_of(claim) is not Phase.READY:
            return True
        if made.seen and not named:
            # The scheduler tried the open machine and did not want it: that is its answer.
            return False
        now = self._ctx.clock.now()
        if made.until is None:
            made.until = now + RECHECK_S
        return now < made.until

    def _is_unnamed(self, key: str, made: _Nomination) -> bool:
        pod = self._pods.get(key)
        return pod is not None and pod.uid == made.uid and _is_free(pod)

    async def _hold(self, key: str, made: _Nomination) -> None:
        """Until the watch shows the name: the scheduler tries pods when a Node appears, and notes it in them."""
        for _ in range(TRIES):
            pod = self._pods.get(key)
            if pod is None or not self._is_unnamed(key, made):
                return
            made.changed.clear()
            if not await self._name(pod, made.node):
                return
            if self._pods.get(key) is pod:
                await made.changed.wait()

    async def _name(self, pod: Pod, node: str) -> bool:
        """Whether another version of the pod is on its way: with the name, or somebody else's."""
        if not self._is_allowed or not self._bucket.try_take():
            return False
        try:
            await self._patch(pod, node)
        except Conflict:
            return True
        except Forbidden as error:
            self._is_allowed = False
            self._log.error("pods are not told of their machines any more; allow patch of pods/status", error=error)
            return False
        except (ApiError, OSError) as error:
            self._log.debug("pod not told of its machine", pod=pod.key, node=node, error=error)
            return False
        return True

    async def _take_back(self, pod: Pod) -> None:
        try:
            await self._patch(pod, None)
        except (Conflict, NotFound):
            # Bound, gone, or cleared by the scheduler; if none of these, its next try clears the name.
            self._log.debug("pod changed meanwhile", pod=pod.key)

    async def _patch(self, pod: Pod, node: str | None) -> None:
        body = {
            "metadata": {"resourceVersion": pod.metadata.resource_version},
            "status": {"nominatedNodeName": node},
        }
        await self._ctx.api.patch(kinds.POD, pod.name, body, pod.namespace, subresource="status")

    def _pod_changed(self, change: Changed[Pod]) -> None:
        pod = change.new or change.old
        made = self._made.get(pod.key) if pod is not None else None
        if pod is not None and made is not None:
            made.changed.set()
            self.controller.enqueue(pod.key)

    def _node_changed(self, change: Changed[Node]) -> None:
        node = change.new or change.old
        if self._made and node is not None and (change.new is None or node.is_deleting):
            for key in [key for key, made in self._made.items() if made.node == node.name]:
                self.controller.enqueue(key)


def _is_free(pod: Pod) -> bool:
    """Whether the pod waits for the default scheduler and nobody has a place in mind for it."""
    return not (
        pod.spec.node_name
        or pod.status.nominated_node_name
        or pod.is_deleting
        or is_terminal(pod)
        or pod.spec.scheduler_name not in _SCHEDULERS
    )


def _bound_first(pod: Pod) -> tuple[bool, str]:
    """Pods that not every machine suits come first, in case not all may be told."""
    spec = pod.spec
    is_bound = bool(spec.node_selector or spec.affinity or spec.topology_spread_constraints or spec.volumes)
    return not is_bound, pod.key
