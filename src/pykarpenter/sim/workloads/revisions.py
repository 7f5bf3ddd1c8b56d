"""ControllerRevisions of StatefulSets and DaemonSets: every template they had, numbered, so that one can come back.

A template that comes back gets the newest number again. Read only when a template changes.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from pykarpenter.api.kinds import Kind
from pykarpenter.api.meta import Object
from pykarpenter.kube.contract import Json, KubeApi, Selection, list_all
from pykarpenter.kube.errors import AlreadyExists
from pykarpenter.sim.views import RawObject, controller_uid
from pykarpenter.sim.workloads.deployments import template_hash
from pykarpenter.sim.workloads.part import owner_reference

REVISION_LABEL = "controller-revision-hash"


class Revision(Object):
    revision: int = 0
    data: dict[str, Any] = msgspec.field(default_factory=dict)


REVISION: Kind[Revision] = Kind("apps", "v1", "ControllerRevision", "controllerrevisions", True, Revision)


class Revisions:
    """Of one kind of owner."""

    def __init__(self, api: KubeApi, kind: Kind[Any]) -> None:
        self._api = api
        self._kind = kind
        # The template written down last, by the owner's UID.
        self._written: dict[str, str] = {}

    async def keep(self, owner: RawObject) -> None:
        """See that the owner's present template is written down with the highest number."""
        current = template_hash(owner.spec["template"])
        if self._written.get(owner.uid) == current:
            return
        found = await list_all(self._api, REVISION, Selection(namespace=owner.namespace))
        mine = sorted((r for r in found if controller_uid(r) == owner.uid), key=lambda r: (r.revision, r.name))
        name = f"{owner.name}-{current}"
        others = [r for r in mine if r.name != name]
        newest = 1 + max((r.revision for r in others), default=0)
        known = next((r for r in mine if r.name == name), None)
        if known is None:
            await self._create(owner, name, newest)
        elif known.revision < newest:
            await self._api.patch(REVISION, name, {"revision": newest}, owner.namespace)
        limit = int(owner.spec.get("revisionHistoryLimit", 10))
        for old in others[: max(0, len(others) - limit)]:
            await self._api.delete(REVISION, old.name, old.namespace)
        self._written[owner.uid] = current

    async def _create(self, owner: RawObject, name: str, number: int) -> None:
        template: Json = copy.deepcopy(owner.spec["template"])
        labels = {**((template.get("metadata") or {}).get("labels") or {}), REVISION_LABEL: name.rpartition("-")[2]}
        body: Json = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": name,
                "labels": labels,
                "ownerReferences": [owner_reference(self._kind, owner)],
            },
            # A strategic merge patch that puts the template back.
            "data": {"spec": {"template": {**template, "$patch": "replace"}}},
            "revision": number,
        }
        try:
            await self._api.create(REVISION, body, owner.namespace)
        except AlreadyExists:
            return
