"""Lets go of everything: finalizers and owner references come off NodeClaims and Nodes, the machines stay.

For leaving pykarpenter, or Karpenter, without losing a node. It refuses while a controller leads, because that one
would put everything back, and it leaves what is already being deleted to whoever deletes it: without its finalizer a
deleting claim would abandon its machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from pykarpenter.api import kinds, labels
from pykarpenter.api.kinds import Kind
from pykarpenter.api.meta import Object, OwnerReference
from pykarpenter.api.timestamps import parse_optional_timestamp
from pykarpenter.kube.contract import KubeApi, Selection, list_all
from pykarpenter.kube.errors import Conflict, NotFound
from pykarpenter.runtime.clock import Clock

_ATTEMPTS = 5


class StillLed(Exception):
    """A controller holds the lease; stop it first."""


@dataclass(slots=True)
class Released:
    """What was let go, and what is being deleted and was left alone; `kind/name` each."""

    released: list[str] = field(default_factory=list)
    deleting: list[str] = field(default_factory=list)


async def release(
    api: KubeApi, clock: Clock, *, lease_name: str, lease_namespace: str, dry_run: bool = False
) -> Released:
    """Raises StillLed, or the ApiError of a write that was refused; repeating it is safe."""
    await _check_lease(api, clock, lease_name, lease_namespace)
    result = Released()
    # Nodes first: a Node must not be owned by a claim that can vanish.
    for node in await list_all(api, kinds.NODE):
        await _release(api, kinds.NODE, node, "NodeClaim", result, dry_run)
    for claim in await list_all(api, kinds.NODE_CLAIM):
        await _release(api, kinds.NODE_CLAIM, claim, "NodePool", result, dry_run)
    return result


async def _check_lease(api: KubeApi, clock: Clock, name: str, namespace: str) -> None:
    """Without a namespace the lease is looked for in all of them: it lives where the controller was installed."""
    for lease in await list_all(api, kinds.LEASE, Selection(namespace=namespace)):
        renewed = parse_optional_timestamp(lease.spec.renew_time)
        if lease.name != name or not lease.spec.holder_identity or renewed is None:
            continue
        if clock.now() < renewed + (lease.spec.lease_duration_seconds or 0):
            holder = lease.spec.holder_identity
            raise StillLed(f"lease {lease.key} is held by {holder}: stop the controller, then try again")


async def _release(
    api: KubeApi, kind: Kind[Any], obj: Object, owner_kind: str, result: Released, dry_run: bool
) -> None:
    name = f"{kind.kind}/{obj.name}"
    for _ in range(_ATTEMPTS):
        patch = _patch(obj, owner_kind)
        if not patch:
            return
        if obj.is_deleting:
            result.deleting.append(name)
            return
        if dry_run:
            break
        try:
            await api.patch(kind, obj.name, patch)
            break
        except Conflict:
            obj = await api.get(kind, obj.name)
        except NotFound:
            return
    else:
        raise Conflict(f"{name} changes all the time: something still works on it")
    result.released.append(name)


def _patch(obj: Object, owner_kind: str) -> dict[str, Any]:
    """The merge patch that lets the object go; empty when nothing of ours is on it."""
    meta = obj.metadata
    finalizers = [item for item in meta.finalizers if item != labels.TERMINATION_FINALIZER]
    owners = [owner for owner in meta.owner_references if not _is_ours(owner, owner_kind)]
    if len(finalizers) == len(meta.finalizers) and len(owners) == len(meta.owner_references):
        return {}
    return {
        "metadata": {
            "resourceVersion": meta.resource_version,
            "finalizers": finalizers,
            "ownerReferences": [msgspec.to_builtins(owner) for owner in owners],
        }
    }


def _is_ours(owner: OwnerReference, kind: str) -> bool:
    return owner.kind == kind and owner.api_version.startswith(f"{labels.GROUP}/")
