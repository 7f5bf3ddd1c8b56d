"""The liveness invariants L1…L7, checked at the end: faults are over and the world has had time to settle."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.api.pods import Pod
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.core.resources import fits, pod_requests
from pykarpenter.kube.contract import Json
from pykarpenter.kube.events import SOURCE
from pykarpenter.sim.checkers.report import Report
from pykarpenter.sim.cloud.instances import TAG_CLAIM_UID
from pykarpenter.sim.cluster import EmbeddedCluster
from pykarpenter.sim.views import DEPLOYMENT, STATEFUL_SET

# An instance nobody owns is reaped, and a deletion finishes, within this long.
ORPHAN_S = 600.0
DELETION_S = 1200.0


# Once a wait is over: a plan, a launch and a start.
_LAUNCH_S = 300.0
_NAMED_WAIT = re.compile(r"next try in (\d+)s")


def named_waits(cluster: EmbeddedCluster, report: Report) -> float:
    """The loop's time by which every pending pod must run: when the waits that their events name are over.

    A pod without a node that heard nothing of a wait breaks L1 at once.
    """
    now, time = cluster.clock.now(), asyncio.get_running_loop().time()
    told = _told(cluster)
    until = time
    for pod in waiting(cluster):
        ends = told.get(pod.uid)
        if ends is None:
            report.add("L1", now, f"pod {pod.key} has no node, and no event says how long it must wait")
        else:
            until = max(until, time + ends - now + _LAUNCH_S)
    return until


def waiting(cluster: EmbeddedCluster) -> list[Pod]:
    """Pods without a node that some machine of the catalogue could take."""
    rooms = [item.allocatable() for item in cluster.cloud.market.catalog.types]
    pending = [pod for pod in _all(cluster, kinds.POD) if not pod.spec.node_name and not pod.is_deleting]
    return [pod for pod in pending if any(fits(pod_requests(pod), room) for room in rooms)]


def _told(cluster: EmbeddedCluster) -> dict[str, float]:
    """By the UID of the pod, when the last wait that an event names is over."""
    told: dict[str, float] = {}
    for entry in cluster.store.table(kinds.EVENT.group, kinds.EVENT.plural).entries.values():
        found = _NAMED_WAIT.search(str(entry.obj.get("message", "")))
        said = parse_optional_timestamp(entry.obj.get("lastTimestamp"))
        uid = str((entry.obj.get("involvedObject") or {}).get("uid", ""))
        if found is not None and said is not None:
            told[uid] = max(told.get(uid, 0.0), said + float(found[1]))
    return told


def check_liveness(cluster: EmbeddedCluster, report: Report, *, launched: int, terminated: int) -> None:
    """`launched` and `terminated` are the cloud's counts before a last stretch of steady load."""
    now, ledger = cluster.clock.now(), cluster.cloud.ledger
    _l1_every_pod_runs(cluster, report, now)
    _l2_every_instance_is_owned(cluster, report, now)
    _l3_deletions_end(cluster, report, now)
    if ledger.launched != launched:
        report.add("L5", now, f"{ledger.launched - launched} machines were launched under steady load")
    if ledger.terminated != terminated:
        report.add("L5", now, f"{ledger.terminated - terminated} machines were ended under steady load")
    _l7_no_pod_is_lost(cluster, report, now)


def _all(cluster: EmbeddedCluster, kind: kinds.Kind[Any]) -> list[Any]:
    table = cluster.store.table(kind.group, kind.plural)
    return [entry.decode(kind.type) for entry in table.entries.values()]


def _l1_every_pod_runs(cluster: EmbeddedCluster, report: Report, now: float) -> None:
    """Pods that no machine could take must have heard so; all others must have a node."""
    feasible = {pod.uid for pod in waiting(cluster)}
    events = cluster.store.table(kinds.EVENT.group, kinds.EVENT.plural).entries.values()
    told = {str((e.obj.get("involvedObject") or {}).get("uid")) for e in events if _is_ours(e.obj)}
    for pod in _all(cluster, kinds.POD):
        if pod.spec.node_name or pod.is_deleting:
            continue
        if pod.uid in feasible:
            report.add("L1", now, f"pod {pod.key} still has no node")
        elif pod.uid not in told:
            report.add("L1", now, f"pod {pod.key} fits no machine, and no event says so")


def _is_ours(event: Json) -> bool:
    return bool((event.get("source") or {}).get("component") == SOURCE)


def _l2_every_instance_is_owned(cluster: EmbeddedCluster, report: Report, now: float) -> None:
    claims = {claim.uid for claim in _all(cluster, kinds.NODE_CLAIM)}
    for instance in cluster.cloud.live():
        uid = instance.tags.get(TAG_CLAIM_UID)
        if uid and uid not in claims and now - instance.launched_at > ORPHAN_S:
            report.add("L2", now, f"instance {instance.id} belongs to no NodeClaim and was not reaped")


def _l3_deletions_end(cluster: EmbeddedCluster, report: Report, now: float) -> None:
    for kind in (kinds.NODE_CLAIM, kinds.NODE):
        for item in _all(cluster, kind):
            since = parse_optional_timestamp(item.metadata.deletion_timestamp)
            if since is not None and now - since > DELETION_S:
                report.add("L3", now, f"{kind.kind} {item.name} has been going for {now - since:.0f} s")


def _l7_no_pod_is_lost(cluster: EmbeddedCluster, report: Report, now: float) -> None:
    for kind in (DEPLOYMENT, STATEFUL_SET):
        for item in _all(cluster, kind):
            wanted, ready = int(item.spec.get("replicas", 1)), int(item.status.get("readyReplicas", 0))
            if ready != wanted:
                report.add("L7", now, f"{kind.kind} {item.key} has {ready} of {wanted} pods")
