"""Why a class of pods has no place: per NodePool the step that ruled it out, what each step removed, the nearest miss.

Asked only for pods that are left out, in the final state of the decision; the most relaxed rung is explained, as
everything before it is stricter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pykarpenter.api import labels
from pykarpenter.api.quantity import format_quantities, format_units
from pykarpenter.core.interning import Bools, Ints
from pykarpenter.core.packing.classes import PodClass
from pykarpenter.core.packing.domains import DomainPlacer
from pykarpenter.core.packing.kernel import Kernel
from pykarpenter.core.packing.kinds import Kind
from pykarpenter.core.packing.rungs import Rung
from pykarpenter.core.packing.templates import NODES, Template
from pykarpenter.core.packing.topology import template_values
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.reasons import PoolRefusal, Refusal, Why
from pykarpenter.core.requirements import Requirement, Requirements

# A cpu request of a million cores or more is a typing error: "100M" for "100m".
_ABSURD_CPU_M = 10**9

Removed = list[tuple[str, int]]


class Explainer:
    """Explains refusals in the final state of a decision."""

    def __init__(
        self,
        kernel: Kernel,
        settings: PackingSettings,
        empty_pools: Mapping[str, Refusal],
        idle_pools: Sequence[PoolRefusal],
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._empty_pools = empty_pools
        self._idle_pools = idle_pools

    def refusal(self, cls: PodClass) -> Refusal:
        """One structured value for all pods of the class."""
        rung = cls.rungs[-1]
        pools = [self._pool(cls, rung, root) for root in self._kernel.roots]
        pools += [
            PoolRefusal(name, refusal.why, refusal.message) for name, refusal in sorted(self._empty_pools.items())
        ]
        pools = self._asked_first([*pools, *self._idle_pools], rung)
        details = {"requests": format_quantities(cls.requests), "existingNodes": self._nodes(cls, rung)}
        if not pools:
            return Refusal(Why.NO_NODE_POOLS, "no dynamic nodepools found", details=details)
        reasons = {pool.why for pool in pools}
        return Refusal(pools[0].why if len(reasons) == 1 else _leading(pools), pools[0].message, tuple(pools), details)

    def _asked_first(self, pools: list[PoolRefusal], rung: Rung) -> list[PoolRefusal]:
        """The pool that came closest first; those that the pod's own `karpenter.sh/nodepool` rules out come last."""
        wanted = self._kernel.kinds.sets[rung.guests[0]].get_or_exists(labels.NODEPOOL)
        message = f"it needs {_text(wanted)}"
        others = [PoolRefusal(pool.pool, Why.OTHER_POOL, message) for pool in pools if not wanted.allows(pool.pool)]
        asked = [pool for pool in pools if wanted.allows(pool.pool)]
        return [*sorted(asked, key=lambda pool: -len(pool.removed)), *others]

    # One pool.

    def _pool(self, cls: PodClass, rung: Rung, root: Kind) -> PoolRefusal:
        template = root.template
        taint = template.untolerated(rung.tolerations)
        if taint is not None:
            text = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            return PoolRefusal(template.name, Why.TAINT, f"did not tolerate taint {text}")
        refusals = [self._guest(cls, rung, root, guest) for guest in rung.guests]
        # With several volume alternatives the one that got furthest says most.
        return max(refusals, key=lambda refusal: len(refusal.removed))

    def _guest(self, cls: PodClass, rung: Rung, root: Kind, guest: int) -> PoolRefusal:
        template, wanted = root.template, self._kernel.kinds.sets[guest]
        kind = self._kernel.kinds.merge(root, guest)
        if kind is None:
            return self._conflict(cls, template, wanted)
        removed, why, message, nearest = self._types(cls, template, kind)
        if why is None:
            return self._topology(cls, rung, template, kind, removed)
        return PoolRefusal(template.name, why, message, tuple(removed), nearest)

    def _conflict(self, cls: PodClass, template: Template, wanted: Requirements) -> PoolRefusal:
        host = template.requirements
        well_known = self._settings.label_rules.well_known
        key = host.incompatibility(wanted, well_known) or ""
        item = wanted.get_or_exists(key)
        if key not in host:
            hint = _similar(key, [*sorted(well_known), *sorted(host)])
            typo = f' (typo of "{hint}"?)' if hint else "; declare it as a label or requirement of the nodepool"
            return PoolRefusal(template.name, Why.UNDEFINED_LABEL, f'label "{key}" does not have known values{typo}')
        from_volumes = cls.demand.alternatives and key not in cls.rungs[-1].strict
        why = Why.VOLUME_TOPOLOGY if from_volumes else Why.REQUIREMENT
        source = "its volumes need" if from_volumes else "it needs"
        return PoolRefusal(template.name, why, f"{source} {_text(item)}, but the nodepool has {_text(host[key])}")

    def _types(self, cls: PodClass, template: Template, kind: Kind) -> tuple[Removed, Why | None, str, str]:
        """What each step removes of the pool's types; the step that leaves none is the reason."""
        table = template.table
        selection = table.select(template.requirements)
        alive = np.zeros(table.row_count, dtype=bool)
        alive[table.offering_row[selection.offerings]] = True
        removed: Removed = []
        for name, why, mask in self._steps(cls, template, kind):
            left = alive & mask
            if not left.any():
                removed.append((name, _types(table.row_type, alive)))
                message, nearest = self._step_text(name, cls, template, kind, alive)
                return removed, why, message, nearest
            removed.append((name, _types(table.row_type, alive) - _types(table.row_type, left)))
            alive = left
        devices = self._kernel.devices
        if cls.devices and devices.narrowed(cls, kind, self._kernel.claims, None) is None:
            removed.append(("devices", _types(table.row_type, alive)))
            return removed, Why.DEVICES, devices.reason, ""
        unmet = self._kernel.care.unmet(kind, cls.vector) if kind.min_values else []
        if unmet and self._settings.min_values_policy != "BestEffort":
            item, found = unmet[0]
            message = f"minValues of {item.key} is {item.min_values}, but only {found} values are possible"
            return removed, Why.MIN_VALUES, message, ""
        return removed, None, "", ""

    def _steps(self, cls: PodClass, template: Template, kind: Kind) -> list[tuple[str, Why, Bools]]:
        table = template.table
        everything = np.ones(table.row_count, dtype=bool)
        blocked = template.port_conflicts(cls.ports) if cls.ports else None
        attachable = self._attachable(cls, template)
        within = template.within_limits(kind.selection.rows)
        roomy: Bools = np.all(template.usable() >= np.maximum(cls.vector, 0), axis=1)
        return [
            ("requirements", Why.REQUIREMENT, table.types_meeting(kind.requirements)[table.row_type]),
            ("offerings", Why.OFFERING, kind.selection.rows | kind.selection.full_rows),
            ("host ports", Why.HOST_PORT, everything if blocked is None else ~blocked),
            ("volume limits", Why.VOLUME_LIMIT, everything if attachable is None else attachable),
            ("resources", Why.RESOURCES, roomy),
            ("limits", Why.LIMITS, everything if within is None else within),
        ]

    def _attachable(self, cls: PodClass, template: Template) -> Bools | None:
        root = self._kernel.roots[template.index]
        if not cls.demand.attachments:
            return None
        narrowed = self._kernel.attachments.narrowed(self._kernel.kinds, root, None, cls.demand)
        mask = np.zeros(template.table.row_count, dtype=bool)
        if narrowed is not None:
            mask[narrowed.rows] = True
        return mask

    def _step_text(self, step: str, cls: PodClass, template: Template, kind: Kind, alive: Bools) -> tuple[str, str]:
        wanted = ", ".join(_text(r) for r in self._own(cls, kind)) or "the nodepool's requirements"
        if step == "requirements":
            return f"no instance type satisfies {wanted}", ""
        if step == "offerings":
            return f"no available offering satisfies {wanted}", ""
        if step == "host ports":
            return f"host ports {', '.join(map(str, cls.ports))} are taken by DaemonSets on every instance type", ""
        if step == "volume limits":
            return self._volume_text(cls, template), ""
        if step == "resources":
            return self._resource_text(cls, template, alive)
        return _limits_text(template), ""

    def _own(self, cls: PodClass, kind: Kind) -> list[Requirement]:
        guest = self._kernel.kinds.sets[cls.rungs[-1].guests[0]]
        return [kind.requirements[key] for key in sorted(guest) if key in kind.requirements]

    def _volume_text(self, cls: PodClass, template: Template) -> str:
        for driver, keys in cls.demand.attachments.items():
            largest = self._kernel.attachments.largest(template.table, driver)
            if largest is not None and len(keys) > largest:
                return (
                    "would exceed volume limit for all instance type options "
                    f"(driver {driver}, {len(keys)} volumes, largest limit {largest})"
                )
        return "would exceed volume limit for all instance type options"

    def _resource_text(self, cls: PodClass, template: Template, alive: Bools) -> tuple[str, str]:
        columns, table = self._kernel.columns, template.table
        rows = np.flatnonzero(alive)
        usable = template.usable()[rows]
        short = np.maximum(cls.vector - usable, 0)
        relative = (short / np.maximum(cls.vector, 1)).sum(axis=1)
        index = min(range(len(rows)), key=lambda i: (float(relative[i]), str(table.names[table.row_type[rows[i]]])))
        nearest = str(table.names[table.row_type[rows[index]]])
        lacks = ", ".join(
            f"{format_units(name, int(amount))} {name}"
            for name, amount in zip(columns.names, short[index].tolist(), strict=False)
            if amount
        )
        asked = ", ".join(f"{name} {value}" for name, value in format_quantities(cls.requests).items())
        hint = " (is the cpu request a typo of m as M?)" if cls.requests.get("cpu", 0) >= _ABSURD_CPU_M else ""
        overhead = " after DaemonSets" if template.daemons else ""
        text = f"no instance type has enough resources for {asked}; nearest is {nearest}, which lacks {lacks}{overhead}"
        return text + hint, f"{nearest} lacks {lacks}"

    # Topology.

    def _topology(self, cls: PodClass, rung: Rung, template: Template, kind: Kind, removed: Removed) -> PoolRefusal:
        """Some type would do: what keeps the pod away is a rule about its peers."""
        message = "no machine of this nodepool can take the pod together with those already planned"
        for item in rung.hosts:
            if self._kernel.new_host_cap(Rung((), rung.strict, (), [item], [])) == 0:
                message = f"{item.group.rule.describe()}: no machine holds a pod that the term selects"
                return PoolRefusal(template.name, Why.TOPOLOGY, message, tuple(removed))
        if rung.zonal:
            admitted, text = DomainPlacer(self._kernel, cls, rung).open_domains()
            message = text or self._unreachable(rung, kind, admitted)
        return PoolRefusal(template.name, Why.TOPOLOGY, message, tuple(removed))

    def _unreachable(self, rung: Rung, kind: Kind, admitted: Mapping[str, Mapping[str, int]]) -> str:
        parts = []
        for item in rung.zonal:
            key = item.group.rule.key
            offered = template_values(kind.template, key)
            parts.append(f"{item.group.rule.describe()} leaves {sorted(admitted[key])} of {sorted(offered)}")
        return "no offering fits in the domains that topology rules leave: " + "; ".join(parts)

    # Existing nodes.

    def _nodes(self, cls: PodClass, rung: Rung) -> dict[str, int]:
        """How many existing machines each step excludes."""
        nodes = self._kernel.nodes
        number = nodes.targets
        if not number:
            return {}
        tolerated = nodes.tolerated(rung.tolerations)[:number]
        matching = nodes.compatible(self._kernel.kinds.sets[rung.guests[0]])[:number] & tolerated
        roomy = (nodes.rooms(cls.vector) > 0) & matching
        counts = {
            "taints": int((~tolerated).sum()),
            "requirements": int((tolerated & ~matching).sum()),
            "resources": int((matching & ~roomy).sum()),
            "topology": int(roomy.sum()),
        }
        return {step: count for step, count in counts.items() if count}


def _types(row_type: Ints, mask: Bools) -> int:
    return len(np.unique(row_type[mask]))


def _limits_text(template: Template) -> str:
    left = template.remaining or {}
    if left.get(NODES, 1) < 1:
        return "node limits have been exhausted for nodepool"
    text = ", ".join(f"{name} {format_units(name, max(amount, 0))}" for name, amount in sorted(left.items()))
    return f"all available instance types exceed limits for nodepool (left: {text})"


def _leading(pools: list[PoolRefusal]) -> Why:
    """The reason of the pool that came closest: the one that got through the most steps."""
    return max(pools, key=lambda pool: len(pool.removed)).why


def _text(item: Requirement) -> str:
    bounds = [f">= {item.gte}"] if item.gte is not None else []
    bounds += [f"<= {item.lte}"] if item.lte is not None else []
    if bounds:
        return f"{item.key} {' and '.join(bounds)}"
    if item.operator in ("Exists", "DoesNotExist"):
        return f"{item.key} {item.operator}"
    listed = item.sorted_values()
    shown = ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
    return f"{item.key} {item.operator} [{shown}]"


def _similar(key: str, candidates: list[str]) -> str:
    """A known key that contains the unknown one, or shares its last part."""
    suffix = key.rpartition("/")[2]
    for candidate in candidates:
        if candidate != key and (key in candidate or candidate.rpartition("/")[2] == suffix):
            return candidate
    return ""
