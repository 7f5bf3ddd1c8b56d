"""RBAC in front of the in-process store: what the roles do not give is refused, as an API server would."""

from __future__ import annotations

from collections.abc import Iterable

from pykarpenter.cloud.permissions import OWN_NAMESPACE, Permission, Right
from pykarpenter.kube.errors import Forbidden
from pykarpenter.sim.api import Middleware, Request

SUBRESOURCE_CALLS = {"evict": "eviction", "bind": "binding"}


class Rbac(Middleware):
    """Lets through what is permitted; remembers what was used and what was refused."""

    def __init__(self, permissions: Iterable[Permission], own_namespace: str) -> None:
        self.permissions = tuple(permissions)
        self._own_namespace = own_namespace
        self.used: set[Right] = set()
        self.refused: set[str] = set()

    async def before(self, request: Request) -> None:
        verb = "create" if request.verb in SUBRESOURCE_CALLS else request.verb
        subresource = SUBRESOURCE_CALLS.get(request.verb, request.subresource)
        resource = f"{request.kind.plural}/{subresource}" if subresource else request.kind.plural
        for item in self.permissions:
            place = self._own_namespace if item.namespace == OWN_NAMESPACE else item.namespace
            if (
                (item.group, item.resource) == (request.kind.group, resource)
                and verb in item.verbs
                and place in ("", request.namespace or request.selection.namespace)
                and (not item.names or request.name in item.names)
            ):
                self.used.add((item.namespace, item.group, item.resource, verb))
                return
        who = f'cannot {verb} resource "{resource}" in API group "{request.kind.group}"'
        self.refused.add(f"{who} ({request.namespace}/{request.name})")
        raise Forbidden(who)
