"""A store on a clock that tests move by hand, and the few objects most tests need."""

from __future__ import annotations

from typing import Any

from pykarpenter.sim.store import Entry, Store, WatchRequest

START = 1_800_000_000.0


class HandClock:
    def __init__(self, now: float = START) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


class World:
    """A store with short names for what tests do most."""

    def __init__(self, **how: Any) -> None:
        self.clock = HandClock()
        self.store = Store(self.clock, **how)

    def kind(self, plural: str) -> Any:
        return next(resource for resource in self.store.resources() if resource.plural == plural)

    def create(self, plural: str, name: str, namespace: str = "", **rest: Any) -> Entry:
        resource = self.kind(plural)
        meta = {"name": name, **rest.pop("metadata", {})}
        scope = (namespace or "default") if resource.namespaced else ""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **rest}
        return self.store.create(resource, body, scope)

    def scope(self, plural: str) -> str:
        return "default" if self.kind(plural).namespaced else ""

    def get(self, plural: str, name: str) -> dict[str, Any]:
        return self.store.get(self.kind(plural), name, self.scope(plural)).obj

    def names(self, plural: str, **selection: Any) -> list[str]:
        from pykarpenter.sim.store import ListRequest

        listing = self.store.list_page(self.kind(plural), ListRequest(**selection))
        return [entry.metadata["name"] for entry in listing.entries]

    def patch(self, plural: str, name: str, patch: Any, **how: Any) -> Entry:
        return self.store.patch(self.kind(plural), name, patch, self.scope(plural), **how)

    def delete(self, plural: str, name: str, request: Any = None) -> Entry:
        how = {} if request is None else {"request": request}
        return self.store.delete(self.kind(plural), name, self.scope(plural), **how)

    def watch(self, plural: str, **how: Any) -> Any:
        return self.store.watch(self.kind(plural), WatchRequest(**how))


def pod_spec(**more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "app"}], **more}


def workload_spec(**more: Any) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    return {"selector": {"matchLabels": labels}, "template": template, **more}


def owned_by(entry: Entry, *, block: bool = False) -> dict[str, Any]:
    obj = entry.obj
    reference = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
    }
    return {**reference, "blockOwnerDeletion": True} if block else reference


def seen(watch: Any) -> list[tuple[str, str]]:
    """Type and name of every event a watch has ready."""
    return [(event.type, event.entry.metadata["name"] if event.entry else "") for event in watch.poll()]
