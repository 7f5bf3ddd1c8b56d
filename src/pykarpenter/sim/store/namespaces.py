"""The end of a namespace: its content goes first, then the namespace itself.

On a real cluster a controller does this; here it follows each write, so that a deleted namespace is empty as soon as
nothing inside holds out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykarpenter.sim.store.entries import Entry, Json, with_metadata
from pykarpenter.sim.store.requests import DeleteRequest
from pykarpenter.sim.store.resources import Resource

if TYPE_CHECKING:
    from pykarpenter.sim.store.store import Store

# In spec, not in metadata: the namespace controller's own finalizer.
CONTENT_FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"


def admit(namespace: Json) -> Json:
    """A new namespace waits for its content on deletion and carries its name as a label."""
    meta = namespace["metadata"]
    labels = {**(meta.get("labels") or {}), NAME_LABEL: meta.get("name", "")}
    return with_metadata({**namespace, "spec": {"finalizers": [CONTENT_FINALIZER]}}, labels=labels)


def follow(store: Store, resource: Resource, entry: Entry, removed: bool) -> None:
    """Empties a namespace that was just deleted, and ends one whose last object just went."""
    if resource.plural == "namespaces" and not removed and "deletionTimestamp" in entry.metadata:
        _empty(store, entry.metadata["name"])
    elif removed and resource.namespaced:
        _end_if_empty(store, entry.metadata["namespace"])


def _empty(store: Store, name: str) -> None:
    for resource in store.resources():
        if resource.namespaced:
            for entry in store.table(resource.group, resource.plural).in_namespace(name):
                if "deletionTimestamp" not in entry.metadata:
                    store.delete(resource, entry.metadata["name"], name, DeleteRequest(uid=entry.metadata["uid"]))
    _end_if_empty(store, name)


def _end_if_empty(store: Store, name: str) -> None:
    namespaces = store.resource("", "namespaces")
    found = store.find(namespaces, name)
    if found is None or "deletionTimestamp" not in found.metadata:
        return
    held = any(
        store.table(resource.group, resource.plural).in_namespace(name)
        for resource in store.resources()
        if resource.namespaced
    )
    if not held and (found.obj.get("spec") or {}).get("finalizers"):
        store.replace(namespaces, found, {**found.obj, "spec": {}})
