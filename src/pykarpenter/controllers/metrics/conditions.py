"""Status conditions of one kind as metrics and events (controllers `operatorpkg.<kind>.status`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pykarpenter.api import kinds, labels
from pykarpenter.api.kinds import Kind
from pykarpenter.api.meta import Condition, Object
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.controllers.context import Changed, Context
from pykarpenter.controllers.metrics.refreshing import Refresher
from pykarpenter.core.conditions import transitions
from pykarpenter.kube.events import reference_to
from pykarpenter.runtime.gauge_tables import GaugeTable, Series

# Kinds that the names without a kind were made for.
_OLD_NAMES = (kinds.NODE_CLAIM.kind, kinds.NODE_POOL.kind, kinds.CAPACITY_BUFFER.kind)


def label_name(key: str) -> str:
    """`karpenter.sh/nodepool` as `karpenter_sh_nodepool`."""
    return key.replace("/", "_").replace(".", "_").replace("-", "_")


def watched_kinds(ctx: Context) -> list[tuple[Kind[Any], tuple[str, ...]]]:
    """Kinds with conditions, and the labels of their objects that metrics carry."""
    classes = tuple(f"{kind.group}/{kind.kind.lower()}" for kind in ctx.provider.traits.node_classes)
    found: list[tuple[Kind[Any], tuple[str, ...]]] = [
        (kinds.NODE_CLAIM, (*classes, labels.NODEPOOL)),
        (kinds.NODE_POOL, ()),
        (kinds.NODE, (*classes, labels.NODEPOOL, labels.INITIALIZED)),
    ]
    if ctx.settings.feature_gates.capacity_buffer:
        found.append((kinds.CAPACITY_BUFFER, ()))
    for c in ctx.provider.traits.node_classes:
        found.append((kinds.node_class_kind(c.group, c.version, c.kind, c.plural), ()))
    return found


class ConditionGauges:
    """One kind. Conditions seen in the first list are shown, but are no transitions."""

    def __init__(self, ctx: Context, table: GaugeTable, kind: Kind[Any], label_keys: tuple[str, ...]) -> None:
        self._ctx = ctx
        self._table = table
        self._kind = kind
        self._label_keys = label_keys
        self._prefix = f"operator_{kind.kind.lower()}"
        self._has_old_names = kind.kind in _OLD_NAMES
        self._objects = ctx.caches.of(kind)
        self.refresher = Refresher(
            f"operatorpkg.{kind.kind.lower()}.status", self.render, ctx.clock, finish=lambda: None
        )
        ctx.caches.subscribe(kind, self._changed)

    async def run(self) -> None:
        await self.refresher.run()

    def _changed(self, change: Changed[Any]) -> None:
        old, new = change.old, change.new
        if new is None:
            if old is not None:
                self.refresher.touch(old.key)
                self._finalized(old)
            return
        if old is not None and old.status.conditions == new.status.conditions and old.is_deleting == new.is_deleting:
            if self._labels(old) != self._labels(new):
                self.refresher.touch(new.key)
            return
        self.refresher.touch(new.key)
        if old is not None:
            self._transitioned(old, new)

    def _transitioned(self, old: Any, new: Any) -> None:
        for item in transitions(old.status.conditions, new.status.conditions):
            now, before = item.condition, item.previous
            shown = {"type": now.type, "status": now.status, "reason": now.reason}
            self._count("status_condition_transitions_total", shown, new)
            if before is None:
                continue
            left = {"type": now.type, "status": before.status, "to_status": now.status}
            begin, end = _at(before), _at(now)
            if begin is not None and end is not None:
                self._observe("status_condition_transition_seconds", left, new, max(0.0, end - begin))
            message = f"Status condition transitioned, Type: {now.type}, Status: {before.status} -> {now.status}"
            if now.reason:
                message += f", Reason: {now.reason}"
            if now.message:
                message += f", Message: {now.message}"
            self._ctx.recorder.publish(reference_to(self._kind, new), "Normal", now.type, message)

    def _finalized(self, old: Any) -> None:
        begin = parse_optional_timestamp(old.metadata.deletion_timestamp)
        if begin is None:
            return
        self._observe("termination_duration_seconds", {}, old, max(0.0, self._ctx.clock.now() - begin))
        self._ctx.recorder.publish(reference_to(self._kind, old), "Normal", "Finalized", "Finalized")

    def render(self, key: str) -> None:
        found = self._objects.get(key)
        if found is None:
            self._table.drop(key)
            return
        self._table.put(key, self._counts(found), self._ages(found))

    def _counts(self, obj: Any) -> Iterator[Series]:
        for condition in obj.status.conditions:
            for name, labelled in self._named("status_condition_count", obj, _shown(condition)):
                yield name, labelled, 1.0

    def _ages(self, obj: Any) -> Iterator[Series]:
        for condition in obj.status.conditions:
            since = _at(condition)
            if since is not None:
                for name, labelled in self._named("status_condition_current_status_seconds", obj, _shown(condition)):
                    yield name, labelled, since
        deleting = parse_optional_timestamp(obj.metadata.deletion_timestamp)
        if deleting is not None:
            for name, labelled in self._named("termination_current_time_seconds", obj, {}):
                yield name, labelled, deleting

    def _named(self, name: str, obj: Object, shown: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
        """A series under the kind's own name and, where there is one, under the name without a kind."""
        identity = {"namespace": obj.namespace, "name": obj.name}
        yield f"{self._prefix}_{name}", {**identity, **self._labels(obj), **shown}
        if self._has_old_names:
            yield f"operator_{name}", {"group": self._kind.group, "kind": self._kind.kind, **identity, **shown}

    def _labels(self, obj: Object) -> dict[str, str]:
        return {label_name(key): obj.metadata.labels.get(key, "") for key in self._label_keys}

    def _count(self, name: str, shown: Mapping[str, str], obj: Object) -> None:
        self._both(name, shown, obj, lambda found, labelled: self._ctx.metrics.count(found, labelled))

    def _observe(self, name: str, shown: Mapping[str, str], obj: Object, value: float) -> None:
        self._both(name, shown, obj, lambda found, labelled: self._ctx.metrics.observe(found, labelled, value))

    def _both(
        self, name: str, shown: Mapping[str, str], obj: Object, note: Callable[[str, dict[str, str]], None]
    ) -> None:
        note(f"{self._prefix}_{name}", {**shown, **self._labels(obj)})
        if self._has_old_names:
            note(f"operator_{name}", {"group": self._kind.group, "kind": self._kind.kind, **shown})


def _shown(condition: Condition) -> dict[str, str]:
    return {"type": condition.type, "status": condition.status, "reason": condition.reason}


def _at(condition: Condition) -> float | None:
    return parse_optional_timestamp(condition.last_transition_time)
