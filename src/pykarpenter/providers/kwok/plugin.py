"""The entry point `kwok`: the provider's settings, and how provider and kubelets are put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykarpenter.cloud.catalog import read_catalog
from pykarpenter.cloud.permissions import Permission
from pykarpenter.cloud.plugin import BackgroundTask, BuiltProvider, Setting
from pykarpenter.kube.contract import KubeApi
from pykarpenter.providers.kwok import permissions
from pykarpenter.providers.kwok.kubelet import Kubelets
from pykarpenter.providers.kwok.provider import KwokProvider
from pykarpenter.providers.kwok.publish import DriverPublisher
from pykarpenter.runtime.clock import Clock

BUILTIN = "builtin"
EXTERNAL = "external"


def _kubelets(text: str) -> str:
    if text not in (BUILTIN, EXTERNAL):
        raise ValueError(f"expected {BUILTIN} or {EXTERNAL}")
    return text


INSTANCE_TYPES = Setting(
    "instance-types-file-path",
    "INSTANCE_TYPES_FILE_PATH",
    "",
    "JSON file of instance types; empty is the built-in catalogue",
)
KUBELETS = Setting(
    "kwok-kubelets",
    "KWOK_KUBELETS",
    BUILTIN,
    "builtin: simulate kubelets in this process; external: leave nodes to a KWOK controller or `pykarpenter kubelets`",
    _kubelets,
)


class KwokPlugin:
    """Satisfies `cloud.plugin.ProviderPlugin`."""

    name = "kwok"
    settings: tuple[Setting, ...] = (INSTANCE_TYPES, KUBELETS)

    def permissions(self, settings: Mapping[str, Any]) -> tuple[Permission, ...]:
        plays_kubelets = settings.get(KUBELETS.flag, BUILTIN) == BUILTIN
        return permissions.PROVIDER + (permissions.KUBELETS + permissions.DRIVERS if plays_kubelets else ())

    async def build(self, api: KubeApi, clock: Clock, settings: Mapping[str, Any]) -> BuiltProvider:
        """Raises ValueError (CatalogError) for a catalogue that cannot be read."""
        catalog = read_catalog(settings.get(INSTANCE_TYPES.flag) or "kwok")
        provider = KwokProvider(api, clock, catalog)
        background = [BackgroundTask("kwok.registrations", provider.run_registrations)]
        if settings.get(KUBELETS.flag, BUILTIN) == BUILTIN:
            kubelets = Kubelets(api, clock, publishers=[DriverPublisher(api, catalog)])
            background.append(BackgroundTask("kwok.kubelets", kubelets.run))
        return BuiltProvider(provider, tuple(background))
