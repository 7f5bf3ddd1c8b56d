"""Finds providers by entry point; nothing is downloaded and nothing outside the installed packages is looked at."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import cast

from pykarpenter.cloud.plugin import ProviderPlugin
from pykarpenter.kube.contract import KubeApi
from pykarpenter.runtime.clock import Clock

GROUP = "pykarpenter.providers"

Plugin = ProviderPlugin[KubeApi, Clock]


class UnknownProvider(ValueError):
    """No installed package offers a provider of that name."""

    def __init__(self, name: str, known: list[str]) -> None:
        offered = ", ".join(known) or "none"
        super().__init__(f"unknown provider {name!r}: installed providers are {offered}")
        self.name = name
        self.known = known


def provider_names() -> list[str]:
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def load_plugin(name: str) -> Plugin:
    """The plug-in of that name; raises UnknownProvider, or ImportError with what its package lacks."""
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return cast(Plugin, entry.load()())
    raise UnknownProvider(name, provider_names())
