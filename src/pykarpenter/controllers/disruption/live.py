"""Reads a command's machines from the API server itself, past every cache, and compares them with the command."""

from __future__ import annotations

from pykarpenter.api import kinds
from pykarpenter.api.nodepool import NodeClaim
from pykarpenter.api.nodes import Node
from pykarpenter.api.pods import Pod
from pykarpenter.api.workloads import PodDisruptionBudget
from pykarpenter.controllers.context import Context
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.commands import Command, Target
from pykarpenter.core.disruption.facts import LiveMachine, changed, changed_before_delete
from pykarpenter.kube.contract import Selection, list_all
from pykarpenter.kube.errors import NotFound


class LiveFacts:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def read(self, target: Target, *, with_budgets: bool = True) -> LiveMachine:
        """The machine now. A failed read raises: unknown is never taken for absent."""
        node = await self.node(target.node)
        claim = await self.claim(target.claim)
        pods = await self.pods(target.node)
        pdbs: list[PodDisruptionBudget] = []
        if with_budgets and not target.waives_protection:
            for namespace in sorted({pod.namespace for pod in pods}):
                pdbs.extend(await list_all(self._ctx.api, kinds.PDB, Selection(namespace=namespace)))
        return LiveMachine(node, claim, pods, pdbs)

    async def blocker(self, command: Command, target: Target) -> tuple[Blocker | None, LiveMachine]:
        """What stands against tainting the machine or launching for it, with what was read."""
        live = await self.read(target)
        protect = self._ctx.settings.protect_unparsable_do_not_disrupt
        return changed(command.method, target, live, self._ctx.clock.now(), protect), live

    async def delete_blocker(self, command: Command, target: Target) -> tuple[Blocker | None, LiveMachine]:
        """What stands against deleting the machine's claim, once it is tainted."""
        live = await self.read(target, with_budgets=False)
        protect = self._ctx.settings.protect_unparsable_do_not_disrupt
        return changed_before_delete(command.method, target, live, self._ctx.clock.now(), protect), live

    async def node(self, name: str) -> Node | None:
        try:
            return await self._ctx.api.get(kinds.NODE, name)
        except NotFound:
            return None

    async def claim(self, name: str) -> NodeClaim | None:
        try:
            return await self._ctx.api.get(kinds.NODE_CLAIM, name)
        except NotFound:
            return None

    async def pods(self, node: str) -> list[Pod]:
        return await list_all(self._ctx.api, kinds.POD, Selection(field_selector=f"spec.nodeName={node}"))
