"""The controllers of observability, put together; `disable-cluster-state-observability` leaves all of them out."""

from __future__ import annotations

from typing import Protocol

from pykarpenter.controllers.context import Context, Runnable
from pykarpenter.controllers.metrics.conditions import ConditionGauges, watched_kinds
from pykarpenter.controllers.metrics.nodepools import NodePoolGauges
from pykarpenter.controllers.metrics.nodes import NodeGauges
from pykarpenter.controllers.metrics.pods import PodGauges
from pykarpenter.runtime.gauge_tables import GaugeTable


class Tables(Protocol):
    """Where tables of gauges are shown; one of the same name replaces the one before."""

    def use_table(self, name: str, table: GaugeTable) -> None: ...


def observability_controllers(ctx: Context, tables: Tables) -> list[Runnable]:
    def table(name: str) -> GaugeTable:
        made = GaugeTable(ctx.clock.now)
        tables.use_table(name, made)
        return made

    found: list[Runnable] = [
        NodeGauges(ctx, table("nodes")),
        NodePoolGauges(ctx, table("nodepools")),
        PodGauges(ctx, table("pods")),
    ]
    found.extend(
        ConditionGauges(ctx, table(f"conditions-{kind.plural}"), kind, keys) for kind, keys in watched_kinds(ctx)
    )
    return found
