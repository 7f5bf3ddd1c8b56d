"""Ten behaviours of an API server that controllers stand on, each as questions with the answers Kubernetes gives.

A behaviour leaves the objects of its namespace behind; whoever runs it throws them away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pykarpenter.kube.contract import DeleteOptions, Preconditions, Selection
from tests.crds.cases import node_claim, node_pool

from .objects import (
    CONFIG_MAP,
    EVENT,
    NODE,
    NODE_CLAIM,
    NODE_CLASS,
    NODE_POOL,
    PDB,
    POD,
    budget,
    config_map,
    find,
    node,
    owned_by,
    pod,
)
from .sides import Side, eventually, messages, refused_fields

Behaviour = Callable[[Side], Awaitable[None]]


async def defaulting_and_pruning(side: Side) -> None:
    body = node_pool()
    body["spec"]["unknown"] = {"left": "out"}
    body["spec"]["template"]["spec"]["alsoUnknown"] = 1
    pool = await side.api.create(NODE_POOL, body)
    side.find("a new NodePool's expireAfter", pool.spec["template"]["spec"].get("expireAfter"), "720h")
    side.find("its budgets", [b["nodes"] for b in pool.spec["disruption"]["budgets"]], "10%")
    side.find("unknown fields of it are kept", "unknown" in pool.spec, False)
    side.find("unknown fields deep in it are kept", "alsoUnknown" in pool.spec["template"]["spec"], False)
    change = {"spec": {"disruption": {"consolidateAfter": None}, "unknown": 1}}
    pool = await side.api.patch(NODE_POOL, "case", change)
    side.find("a removed field with a default", pool.spec["disruption"].get("consolidateAfter"), "0s")
    side.find("an unknown field of a patch is kept", "unknown" in pool.spec, False)
    side.find("generation after a patch that changes nothing in the end", pool.metadata.generation, 1)
    body = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "case"}}
    made = await side.api.create(NODE_CLASS, {**body, "spec": {}})
    side.find("defaults of a status at creation", [c["type"] for c in made.status.get("conditions", [])], "Ready")
    plain = await side.api.create(POD, pod("plain"), side.namespace)
    for key, expected in (("restartPolicy", "Always"), ("schedulerName", "default-scheduler"), ("priority", 0)):
        side.find(f"a plain pod's {key}", plain.spec.get(key), expected)
    side.find("its tolerations", [t["key"] for t in plain.spec.get("tolerations", [])], TOLERATED)


TOLERATED = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


async def cel_on_create_and_update(side: Side) -> None:
    body = node_pool()
    body["spec"]["disruption"] = {"budgets": [{"nodes": "1", "schedule": "@daily"}]}
    error = await side.find_refusal("a schedule without duration", side.api.create(NODE_POOL, body), "422 Invalid")
    side.find("names the field", refused_fields(error), "spec.disruption.budgets[0]")
    side.find("with the rule's words", messages(error), BUDGET_RULE)
    body = node_pool()
    body["spec"]["template"]["spec"]["requirements"] = [{"key": "kubernetes.io/arch", "operator": "In"}]
    error = await side.find_refusal("In without values", side.api.create(NODE_POOL, body), "422 Invalid")
    side.find("names the requirement", refused_fields(error), "spec.template.spec.requirements[0]")
    await side.api.create(NODE_CLAIM, node_claim())
    change: dict[str, Any] = {"spec": {"expireAfter": "1h"}}
    error = await side.find_refusal(
        "changing an immutable spec", side.api.patch(NODE_CLAIM, "case", change), "422 Invalid"
    )
    side.find("names the spec", refused_fields(error), "spec")
    await side.api.create(NODE_POOL, node_pool())
    change = {"spec": {"template": {"spec": {"nodeClassRef": {"group": "example.com"}}}}}
    error = await side.find_refusal(
        "changing nodeClassRef.group of a pool", side.api.patch(NODE_POOL, "case", change), "422 Invalid"
    )
    side.find("names the reference", refused_fields(error), "spec.template.spec.nodeClassRef")
    patch = side.api.patch(NODE_POOL, "case", {"metadata": {"labels": {"team": "a"}}})
    await side.find_refusal("changing labels only", patch, "accepted")


BUDGET_RULE = "Invalid value: schedule and duration go together; set both or neither"


async def stale_writes(side: Side) -> None:
    first = await side.api.create(CONFIG_MAP, config_map("one"), side.namespace)
    version, uid = first.metadata.resource_version, first.metadata.uid
    second = await side.api.patch(CONFIG_MAP, "one", {"metadata": {"labels": {"a": "1"}}}, side.namespace)
    stale = {"metadata": {"resourceVersion": version, "labels": {"a": "2"}}}
    patch = side.api.patch(CONFIG_MAP, "one", stale, side.namespace)
    await side.find_refusal("a patch with an old resourceVersion", patch, "409 Conflict")
    foreign = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "labels": {"a": "2"}}}
    patch = side.api.patch(CONFIG_MAP, "one", foreign, side.namespace)
    await side.find_refusal("a patch with another UID", patch, "422 Invalid")
    await side.find_refusal(
        "a delete with an old resourceVersion", _delete(side, Preconditions(None, version)), "409 Conflict"
    )
    await side.find_refusal(
        "a delete with another UID", _delete(side, Preconditions(foreign["metadata"]["uid"])), "409 Conflict"
    )
    create = side.api.create(CONFIG_MAP, config_map("one"), side.namespace)
    await side.find_refusal("creating it again", create, "409 AlreadyExists")
    body = config_map("two", resourceVersion=version)
    await side.find_refusal(
        "creating with a resourceVersion", side.api.create(CONFIG_MAP, body, side.namespace), "500 InternalError"
    )
    same = await side.api.patch(CONFIG_MAP, "one", {"metadata": {"labels": {"a": "1"}}}, side.namespace)
    unchanged = same.metadata.resource_version == second.metadata.resource_version
    side.find("a patch without a change makes a new version", not unchanged, False)
    current = Preconditions(uid, second.metadata.resource_version)
    await side.find_refusal("a delete with the current UID and version", _delete(side, current), "accepted")
    await side.find_refusal("deleting it once more", _delete(side, current), "404 NotFound")


def _delete(side: Side, preconditions: Preconditions) -> Awaitable[None]:
    return side.api.delete(CONFIG_MAP, "one", side.namespace, DeleteOptions(preconditions))


async def finalizers(side: Side) -> None:
    body = node_claim()
    body["metadata"]["finalizers"] = ["karpenter.sh/termination"]
    await side.api.create(NODE_CLAIM, body)
    await side.api.delete(NODE_CLAIM, "case")
    left = await side.api.get(NODE_CLAIM, "case")
    side.find("a deleted object with a finalizer has a deletionTimestamp", bool(left.metadata.deletion_timestamp), True)
    side.find("its generation", left.metadata.generation, 2)
    await side.api.delete(NODE_CLAIM, "case")
    again = await side.api.get(NODE_CLAIM, "case")
    moved = again.metadata.deletion_timestamp != left.metadata.deletion_timestamp
    side.find("a second delete moves the deletionTimestamp", moved, False)
    more = {"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/late"]}}
    error = await side.find_refusal("adding a finalizer now", side.api.patch(NODE_CLAIM, "case", more), "422 Invalid")
    side.find("names the field", refused_fields(error), "metadata.finalizers")
    mark = {"metadata": {"annotations": {"example.com/seen": "yes"}}}
    await side.find_refusal("annotating it now", side.api.patch(NODE_CLAIM, "case", mark), "accepted")
    await side.find_refusal("creating the name again", side.api.create(NODE_CLAIM, node_claim()), "409 AlreadyExists")
    await side.api.patch(NODE_CLAIM, "case", {"metadata": {"finalizers": None}})
    side.find("it is there when the finalizer is gone", await find(side.api, NODE_CLAIM, "case") is not None, False)


async def owner_garbage_collection(side: Side) -> None:
    api, namespace = side.api, side.namespace
    owners = {
        how: await api.create(CONFIG_MAP, config_map(f"owner-{how.lower()}"), namespace)
        for how in ("Background", "Orphan", "Foreground")
    }
    for how, owner in owners.items():
        references = owned_by(owner, blocks=how == "Foreground")
        body = config_map(f"owned-{how.lower()}", ownerReferences=references, labels={"owned": "yes"})
        if how == "Foreground":
            body["metadata"]["finalizers"] = ["example.com/hold"]
        await api.create(CONFIG_MAP, body, namespace)
    stray = config_map("stray", ownerReferences=owned_by(owners["Background"], uid="no-such-uid"))
    await api.create(CONFIG_MAP, stray, namespace)
    for how, owner in owners.items():
        await api.delete(CONFIG_MAP, owner.metadata.name, namespace, DeleteOptions(propagation=how))

    async def is_gone(name: str) -> bool:
        return await find(api, CONFIG_MAP, name, namespace) is None

    side.find("Background: what it owned goes", await eventually(lambda: is_gone("owned-background")), True)
    side.find("an object whose owner never existed goes", await eventually(lambda: is_gone("stray")), True)
    side.find("Orphan: the owner goes", await eventually(lambda: is_gone("owner-orphan")), True)
    orphan = await find(api, CONFIG_MAP, "owned-orphan", namespace)
    side.find("Orphan: what it owned stays", orphan is not None, True)
    references = len(orphan.metadata.owner_references) if orphan else -1
    side.find("Orphan: with so many owner references", references, 0)
    held = await eventually(lambda: _is_deleting(side, "owned-foreground"))
    side.find("Foreground: what it owned is deleted first", held, True)
    owner_left = await find(api, CONFIG_MAP, "owner-foreground", namespace)
    side.find(
        "Foreground: the owner waits with the finalizer",
        owner_left.metadata.finalizers if owner_left else "gone",
        "foregroundDeletion",
    )
    await api.patch(CONFIG_MAP, "owned-foreground", {"metadata": {"finalizers": None}}, namespace)
    side.find("Foreground: then the owner goes", await eventually(lambda: is_gone("owner-foreground")), True)


async def _is_deleting(side: Side, name: str) -> bool:
    found = await find(side.api, CONFIG_MAP, name, side.namespace)
    return found is not None and bool(found.metadata.deletion_timestamp)


async def forgotten_history(side: Side) -> None:
    api, here = side.api, Selection(namespace=side.namespace)
    first = await api.create(CONFIG_MAP, config_map("map-0"), side.namespace)
    old = first.metadata.resource_version
    for number in range(1, 4):
        await api.create(CONFIG_MAP, config_map(f"map-{number}"), side.namespace)
    page = await api.list_page(CONFIG_MAP, here, limit=2)
    names = [event.object.metadata.name async for event in _watched(side, old) if event.object]
    side.find("a watch from an old version shows what came since", names, "map-1, map-2, map-3")
    # Only what a write has made old can be forgotten.
    await api.patch(CONFIG_MAP, "map-0", {"metadata": {"labels": {"a": "1"}}}, side.namespace)
    await side.forget_history()
    await side.find_refusal("the same watch once the history is compacted", _drain(side, old), "410 Expired")
    rest = api.list_page(CONFIG_MAP, here, limit=2, continue_token=page.continue_token)
    await side.find_refusal("the next page of a list from before", rest, "410 Expired")
    listed = await api.list_page(CONFIG_MAP, here)
    side.find(
        "a fresh list has everything", [o.metadata.name for o in listed.items if o.metadata.name != ROOT_CA], MAPS
    )
    await side.find_refusal("a watch from the fresh list's version", _drain(side, listed.resource_version), "accepted")


MAPS = "map-0, map-1, map-2, map-3"
# Kubernetes puts this map into every namespace; whether it is there yet is no part of any question.
ROOT_CA = "kube-root-ca.crt"


def _watched(side: Side, version: str) -> Any:
    selection = Selection(namespace=side.namespace, field_selector=f"metadata.name!={ROOT_CA}")
    return side.api.watch(CONFIG_MAP, selection, resource_version=version, timeout_s=1.0)


async def _drain(side: Side, version: str) -> None:
    async for _ in _watched(side, version):
        pass


async def paging(side: Side) -> None:
    api, here = side.api, Selection(namespace=side.namespace, label_selector="page=yes")
    for number in range(5):
        await api.create(CONFIG_MAP, config_map(f"map-{number}", labels={"page": "yes"}), side.namespace)
    first = await api.list_page(CONFIG_MAP, here, limit=2)
    await api.create(CONFIG_MAP, config_map("map-9", labels={"page": "yes"}), side.namespace)
    await api.delete(CONFIG_MAP, "map-4", side.namespace)
    second = await api.list_page(CONFIG_MAP, here, limit=2, continue_token=first.continue_token)
    third = await api.list_page(CONFIG_MAP, here, limit=2, continue_token=second.continue_token)
    pages = [[item.metadata.name for item in page.items] for page in (first, second, third)]
    side.find("pages of two out of five", " / ".join(", ".join(names) for names in pages), PAGES)
    versions = {page.resource_version for page in (first, second, third)}
    side.find("all pages show one moment, although one object came and one went", len(versions) == 1, True)
    side.find("the last page has no token", third.continue_token == "", True)
    now = await api.list_page(CONFIG_MAP, here)
    side.find("a new list", [item.metadata.name for item in now.items], "map-0, map-1, map-2, map-3, map-9")
    broken = api.list_page(CONFIG_MAP, here, limit=2, continue_token="nonsense")
    await side.find_refusal("a token that is none", broken, "400 BadRequest")


PAGES = "map-0, map-1 / map-2, map-3 / map-4"


async def eviction_under_budgets(side: Side) -> None:
    api, namespace = side.api, side.namespace
    await api.create(NODE, node("evictions", "4"))
    for app in ("guarded", "twice", "free"):
        await api.create(POD, pod(app, labels={"app": app}, nodeName="evictions"), namespace)
        ready = [{"type": "Ready", "status": "True"}]
        await api.patch(
            POD, app, {"status": {"phase": "Running", "conditions": ready}}, namespace, subresource="status"
        )
    for name, app in (("guarded", "guarded"), ("twice-a", "twice"), ("twice-b", "twice")):
        await api.create(PDB, budget(name, app, 1), namespace)

    async def counted(name: str, allowed: int) -> bool:
        found = await api.get(PDB, name, namespace)
        status = found.status
        observed = status.get("observedGeneration") == found.metadata.generation
        return bool(observed and status.get("expectedPods") == 1 and status.get("disruptionsAllowed") == allowed)

    for name in ("guarded", "twice-a", "twice-b"):
        await eventually(lambda name=name: counted(name, 0))  # type: ignore[misc]
    error = await side.find_refusal(
        "evicting a pod that its budget needs", api.evict("guarded", namespace), "429 TooManyRequests"
    )
    causes = [cause.get("reason") for cause in (error.details.get("causes") or [])] if error else []
    side.find("with the cause", causes, "DisruptionBudget")
    side.find("the pod is being deleted", await _pod_is_going(side, "guarded"), False)
    await side.find_refusal("evicting a pod with two budgets", api.evict("twice", namespace), "500 InternalError")
    await side.find_refusal("evicting a pod that is not there", api.evict("nobody", namespace), "404 NotFound")
    await api.patch(PDB, "guarded", {"spec": {"minAvailable": 0}}, namespace)
    await eventually(lambda: counted("guarded", 1))
    wrong = api.evict("free", namespace, Preconditions(uid="00000000-0000-0000-0000-000000000000"))
    await side.find_refusal("evicting with another UID", wrong, "409 Conflict")
    await side.find_refusal("evicting when the budget allows it", api.evict("guarded", namespace), "accepted")
    side.find("then the pod is being deleted", await _pod_is_going(side, "guarded"), True)


async def _pod_is_going(side: Side, name: str) -> bool:
    found = await find(side.api, POD, name, side.namespace)
    return found is None or bool(found.metadata.deletion_timestamp)


async def status_isolation(side: Side) -> None:
    condition = {"type": "Launched", "status": "True", "reason": "Launched", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    both = {"status": {"providerID": "kwok://a", "conditions": [condition]}, "metadata": {"labels": {"a": "1"}}}
    made = await side.api.create(NODE_CLAIM, {**node_claim(), "status": both["status"]})
    side.find("a status given at creation is kept", bool(made.status), False)
    main = await side.api.patch(NODE_CLAIM, "case", both)
    side.find("a status patched without the subresource is kept", bool(main.status), False)
    side.find("labels patched with it are kept", main.metadata.labels, {"a": "1"})
    patch = {**both, "metadata": {"labels": {"a": "2"}}, "spec": {"expireAfter": "1h"}}
    through = await side.api.patch(NODE_CLAIM, "case", patch, subresource="status")
    side.find("through the subresource the status is kept", through.status.get("providerID"), "kwok://a")
    side.find("but not the spec", through.spec.get("expireAfter"), main.spec.get("expireAfter"))
    side.find("nor the labels", through.metadata.labels, {"a": "1"})
    side.find("a status write leaves the generation", through.metadata.generation, 1)
    stale = {"metadata": {"resourceVersion": main.metadata.resource_version}, "status": {"imageID": "x"}}
    await side.find_refusal(
        "an old resourceVersion in a status patch",
        side.api.patch(NODE_CLAIM, "case", stale, subresource="status"),
        "409 Conflict",
    )
    wrong = {"status": {"conditions": [{"type": "Launched"}]}}
    await side.find_refusal(
        "a status that breaks the schema",
        side.api.patch(NODE_CLAIM, "case", wrong, subresource="status"),
        "422 Invalid",
    )


async def unschedulable_pods(side: Side) -> None:
    api, namespace = side.api, side.namespace
    await api.create(NODE, node("small", "1"))
    await api.create(POD, pod("big", cpu="3"), namespace)

    async def condition() -> dict[str, Any]:
        found = await api.get(POD, "big", namespace)
        conditions: list[dict[str, Any]] = found.status.get("conditions") or []
        scheduled = next((c for c in conditions if c["type"] == "PodScheduled"), {})
        return scheduled if "Insufficient cpu" in scheduled.get("message", "") else {}

    seen = await eventually(condition)
    side.find("PodScheduled of a pod that fits nowhere", seen.get("status"), "False")
    side.find("reason", seen.get("reason"), "Unschedulable")
    side.find("message, first sentence", seen.get("message", "").split(". ")[0], TOO_SMALL)
    waiting = await api.get(POD, "big", namespace)
    side.find("its phase", waiting.status.get("phase"), "Pending")

    async def told() -> bool:
        selection = Selection(namespace=namespace, field_selector="reason=FailedScheduling")
        return bool((await api.list_page(EVENT, selection)).items)

    side.find("an event FailedScheduling tells of it", await eventually(told), True)
    await api.create(NODE, node("large", "8"))

    async def bound() -> str:
        return str((await api.get(POD, "big", namespace)).spec.get("nodeName", ""))

    side.find("once a large node is there the pod is bound to", await eventually(bound), "large")


TOO_SMALL = "0/1 nodes are available: 1 Insufficient cpu"

BEHAVIOURS: dict[str, Behaviour] = {
    "Defaulting and pruning": defaulting_and_pruning,
    "CEL on create and update": cel_on_create_and_update,
    "409 on stale writes": stale_writes,
    "Finalizers": finalizers,
    "Owner garbage collection": owner_garbage_collection,
    "410 after compaction": forgotten_history,
    "Paging": paging,
    "Eviction under budgets": eviction_under_budgets,
    "Status isolation": status_isolation,
    "Unschedulable pods": unschedulable_pods,
}
