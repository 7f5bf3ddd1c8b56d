"""Attachment limits: how many volumes of each CSI driver a machine can hold, existing or planned."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pykarpenter.api import labels
from pykarpenter.core.instance_types import InstanceType, by_name
from pykarpenter.core.interning import Ints
from pykarpenter.core.packing.kinds import Kind, KindTable
from pykarpenter.core.packing.node_table import NodeTable
from pykarpenter.core.packing.type_table import TypeTable
from pykarpenter.core.snapshot import VolumeObjects
from pykarpenter.core.volumes import VolumeDemand, attachment_limits, bound_attachments

_UNLIMITED = 2**62
Attached = Mapping[str, frozenset[str]]


class Attachments:
    """Volumes on machines of one decision; nodes are read when a pod with volumes first asks."""

    def __init__(self, nodes: NodeTable, volumes: VolumeObjects, types: Mapping[str, tuple[InstanceType, ...]]) -> None:
        self._nodes = nodes
        self._volumes = volumes
        self._types = types
        self._by_name: dict[str, dict[str, InstanceType]] = {}
        self._held: dict[int, dict[str, set[str]]] = {}
        self._limits: dict[int, dict[str, int | None]] = {}
        self._row_limits: dict[tuple[int, str], Ints | None] = {}

    def fit_on_node(self, index: int, wanted: Attached) -> bool:
        held, limits = self._node(index)
        for driver, keys in wanted.items():
            limit = limits.get(driver)
            if limit is not None and len(held.get(driver, set()) | keys) > limit:
                return False
        return True

    def attach_to_node(self, index: int, wanted: Attached) -> None:
        held, _ = self._node(index)
        for driver, keys in wanted.items():
            held.setdefault(driver, set()).update(keys)

    def _node(self, index: int) -> tuple[dict[str, set[str]], dict[str, int | None]]:
        held = self._held.get(index)
        if held is None:
            row = self._nodes.rows[index]
            held = self._held[index] = bound_attachments(row.with_volumes, self._volumes)
            view = row.view
            # Static pools have types too: their nodes get the type's limits until the driver publishes its own.
            fallback = self._type(view.pool_name, view.labels.get(labels.INSTANCE_TYPE, ""))
            name = view.node.name if view.node is not None else view.name
            self._limits[index] = attachment_limits(
                self._volumes.csi_nodes.get(name), fallback.volume_attachment_limits if fallback is not None else {}
            )
        return held, self._limits[index]

    def _type(self, pool: str, name: str) -> InstanceType | None:
        if pool not in self._by_name:
            self._by_name[pool] = by_name(self._types.get(pool, ()))
        return self._by_name[pool].get(name)

    def narrowed(
        self, kinds: KindTable, kind: Kind, held: Mapping[str, set[str]] | None, demand: VolumeDemand
    ) -> Kind | None:
        """The kind without types that cannot attach all volumes; None when none can."""
        for driver, keys in demand.attachments.items():
            limits = self._limits_of(kind.template.table, driver)
            if limits is None:
                continue
            number = len(keys | (held.get(driver, set()) if held else set()))
            kind = kinds.restrict(kind, limits >= number)
        return kind if len(kind.rows) or not demand.attachments else None

    def _limits_of(self, table: TypeTable, driver: str) -> Ints | None:
        question = (id(table), driver)
        if question not in self._row_limits:
            limits = [t.volume_attachment_limits.get(driver, _UNLIMITED) for t in table.types]
            bounded = any(limit != _UNLIMITED for limit in limits)
            self._row_limits[question] = np.array(limits, dtype=np.int64)[table.row_type] if bounded else None
        return self._row_limits[question]

    def largest(self, table: TypeTable, driver: str) -> int | None:
        """The largest limit any type has for the driver; None when some type has none."""
        limits = self._limits_of(table, driver)
        if limits is None or (limits == _UNLIMITED).any():
            return None
        return int(limits.max(initial=0))
