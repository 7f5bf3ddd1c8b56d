"""What must be true of a cluster before anything starts in it; every problem at once, with what was found (B38)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykarpenter.api import kinds
from pykarpenter.api.kinds import Kind
from pykarpenter.api.meta import Object, Wire
from pykarpenter.cloud.provider import ProviderTraits
from pykarpenter.kube.contract import KubeApi
from pykarpenter.kube.errors import Forbidden, NotFound
from pykarpenter.runtime.settings import Settings

OLDEST = (1, 29)
_REMEDY = "apply the CRDs: pykarpenter crds | kubectl apply --server-side -f -"


class _Version(Wire):
    name: str = ""
    served: bool = False


class _DefinitionSpec(Wire):
    versions: tuple[_Version, ...] = ()


class _Definition(Object):
    spec: _DefinitionSpec = _DefinitionSpec()


_DEFINITION = Kind(kinds.CRD.group, kinds.CRD.version, kinds.CRD.kind, kinds.CRD.plural, False, _Definition)


def version_problem(version: str) -> str | None:
    """What is wrong with a server of that version (`1.31`); None when it will do, or says nothing we can read."""
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        return None
    if (major, minor) >= OLDEST:
        return None
    return f"Kubernetes {version} is too old: {OLDEST[0]}.{OLDEST[1]} or newer is needed"


def needed_kinds(settings: Settings, traits: ProviderTraits) -> list[Kind[Any]]:
    """Our own kinds that must be served: pools, claims, the provider's classes, and those of enabled gates."""
    needed: list[Kind[Any]] = [kinds.NODE_POOL, kinds.NODE_CLAIM]
    needed.extend(kinds.node_class_kind(c.group, c.version, c.kind, c.plural) for c in traits.node_classes)
    if settings.feature_gates.node_overlay:
        needed.append(kinds.NODE_OVERLAY)
    if settings.feature_gates.capacity_buffer:
        needed.append(kinds.CAPACITY_BUFFER)
    return needed


async def unserved_kinds(api: KubeApi, needed: Iterable[Kind[Any]]) -> list[str]:
    """A line for each kind that the API server does not serve; API errors that say nothing about it are raised."""
    problems: list[str] = []
    for kind in needed:
        found = await _served_versions(api, kind)
        if found is None:
            served = await _is_served(api, kind)
        else:
            served = kind.version in found
        if not served:
            listed = ", ".join(found) if found else "none"
            problems.append(f"{kind.kind} is not served as {kind.api_version} (found: {listed}); {_REMEDY}")
    return problems


async def device_problem(api: KubeApi, settings: Settings) -> str | None:
    """Why resource claims cannot be served here although the settings ask for it; None when they can, or need not."""
    if settings.ignore_dra_requests or await _is_served(api, kinds.RESOURCE_SLICE):
        return None
    return (
        f"ResourceSlice is not served as {kinds.RESOURCE_SLICE.api_version}; "
        "IGNORE_DRA_REQUESTS=false needs Kubernetes 1.34 or newer"
    )


async def _served_versions(api: KubeApi, kind: Kind[Any]) -> list[str] | None:
    """The versions of the kind's definition; None when we may not read definitions, which nothing else needs."""
    try:
        definition = await api.get(_DEFINITION, f"{kind.plural}.{kind.group}")
    except NotFound:
        return []
    except Forbidden:
        return None
    return [version.name for version in definition.spec.versions if version.served]


async def _is_served(api: KubeApi, kind: Kind[Any]) -> bool:
    try:
        await api.list_page(kind, limit=1)
    except NotFound:
        return False
    return True
