"""Removes the signs of disruptions that nobody stands behind: the whole of crash recovery.

A process that dies between a taint and a deletion leaves a tainted node in service; the next one finds no command
for it and puts it back. Machines that are going, rebooting or held by a running command are left alone.
"""

from __future__ import annotations

from pykarpenter.controllers.context import Context
from pykarpenter.controllers.disruption.marking import Marking, has_reason, has_taint
from pykarpenter.core.snapshot import NodeView
from pykarpenter.kube.errors import Conflict, NotFound
from pykarpenter.runtime.logs import get_logger


class SelfHeal:
    def __init__(self, ctx: Context, marking: Marking) -> None:
        self._ctx = ctx
        self._marking = marking
        self._log = get_logger(controller="disruption")

    async def heal(self, held: frozenset[str]) -> None:
        for view in self._ctx.state.views():
            if not view.managed or view.marked_for_deletion or view.rebooting or view.name in held:
                continue
            if self._has_signs(view):
                await self._clear(view)

    def _has_signs(self, view: NodeView) -> bool:
        tainted = view.node is not None and not view.node.is_deleting and has_taint(view.node)
        return tainted or (view.claim is not None and not view.claim.is_deleting and has_reason(view.claim))

    async def _clear(self, view: NodeView) -> None:
        """From the version last seen: one that changed meanwhile is looked at again in the next pass."""
        try:
            if view.node is not None and not view.node.is_deleting:
                await self._marking.untaint(view.node)
            if view.claim is not None and not view.claim.is_deleting:
                await self._marking.forget_reason(view.claim)
        except (Conflict, NotFound):
            return
        self._log.info("put node back into service that no disruption stands behind", Node=view.name)
