"""The CRD manifests, generated from one description of each kind.

`pykarpenter crds`, the chart, the embedded cluster and `pykarpenter validate` all read them from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pykarpenter.api.crds import core_kinds, gated_kinds, kwok, sim
from pykarpenter.api.crds.schema import Schema

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProviderCrds:
    """What a provider adds: rules on requirement keys and the CRDs of its classes."""

    key_rules: Callable[[], Sequence[Schema]]
    classes: Callable[[], Sequence[Manifest]]


PROVIDERS: dict[str, ProviderCrds] = {
    "kwok": ProviderCrds(kwok.key_rules, lambda: [kwok.node_class()]),
    # The embedded cluster's cloud sells catalogues in KWOK's shape, so its labels are KWOK's too.
    "sim": ProviderCrds(kwok.key_rules, lambda: [sim.node_class()]),
}
DEFAULT_PROVIDER = "kwok"


def crds(provider: str = DEFAULT_PROVIDER) -> list[Manifest]:
    """All manifests for a provider, fresh and independent of each other; raises KeyError for an unknown one."""
    additions = PROVIDERS[provider]
    return [
        core_kinds.node_pool(additions.key_rules()),
        core_kinds.node_claim(additions.key_rules()),
        gated_kinds.node_overlay(),
        gated_kinds.capacity_buffer(),
        *additions.classes(),
    ]
