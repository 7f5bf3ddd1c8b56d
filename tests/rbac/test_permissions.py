"""The roles are exactly what the code's calls need: nothing is missing, nothing is too much."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pykarpenter.api import kinds
from pykarpenter.cloud.permissions import Permission, Right, rights
from pykarpenter.controllers.permissions import CORE, GATES, MEMORY_NAME, SETTINGS, needed_permissions
from pykarpenter.controllers.startup_checks import needed_kinds
from pykarpenter.providers.kwok.permissions import DRIVERS, KUBELETS, PROVIDER
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.runtime.feature_gates import GATES as ALL_GATES
from pykarpenter.runtime.feature_gates import FeatureGates
from pykarpenter.runtime.plugins import load_plugin
from pykarpenter.runtime.settings import Settings
from pykarpenter.sim.api import StoreApi
from pykarpenter.sim.cloud.plugin import PERMISSIONS as SIM
from pykarpenter.sim.store import Store

from .calls import Use, uses

USES = uses()
# What the controllers' code does with a provider's class, whatever its kind.
CLASS_READS = {
    "provider kwok": ("karpenter.kwok.sh", "kwoknodeclasses"),
    "provider sim": ("pykarpenter.sh", "simnodeclasses"),
}
PARTS: dict[str, tuple[Permission, ...]] = {
    "core": CORE,
    **{f"gate {name}": found for name, found in GATES.items()},
    **{f"setting {name}": found for name, found in SETTINGS.items()},
    "provider kwok": PROVIDER,
    "kubelets": KUBELETS,
    "drivers": DRIVERS,
    "provider sim": SIM,
}
# What is there whenever a part is; the part itself says only what it needs beyond.
BENEATH = {"core": (), "kubelets": CORE + PROVIDER}
DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")


def used_by(part: str) -> dict[Right, str]:
    found: dict[Right, str] = {}
    for use in USES:
        if use.part == part:
            found.setdefault(use.right, use.where)
    for verb in ("list", "watch") if part in CLASS_READS else ():
        found[("", *CLASS_READS[part], verb)] = "controllers/nodepool/pools.py"
    return found


def beyond(found: Iterable[Right], beneath: Iterable[Permission]) -> set[Right]:
    # Definitions are compared by name below.
    return {right for right in found if right[1:3] != DEFINITIONS} - set(rights(beneath))


@pytest.mark.parametrize("part", PARTS)
def test_no_permission_is_missing(part: str) -> None:
    """A missing right is a controller that stops in the middle of its work, with 403 in the log."""
    used = used_by(part)
    missing = beyond(used, BENEATH.get(part, CORE)) - set(rights(PARTS[part]))
    assert {right: used[right] for right in missing} == {}


@pytest.mark.parametrize("part", PARTS)
def test_no_permission_is_surplus(part: str) -> None:
    """A right that nothing uses is only good for whoever steals the token."""
    declared = beyond(rights(PARTS[part]), BENEATH.get(part, CORE) if part != "core" else ())
    assert declared - set(used_by(part)) == set()
    repeated = {right for right in rights(PARTS[part]) if right[1:3] != DEFINITIONS} - declared
    assert repeated == set(), "already given beneath"


def test_every_part_of_the_code_is_covered() -> None:
    """A call in a part without a role would have no rights at all."""
    assert sorted({use.part for use in USES} - set(PARTS)) == []


def test_a_hidden_call_is_seen() -> None:
    """The reading of the code finds what it should: eviction, status writes, live reads and watches."""
    seen = {use.right for use in USES if use.part == "core"}
    assert ("", "", "pods/eviction", "create") in seen
    assert ("", "karpenter.sh", "nodeclaims/status", "patch") in seen
    assert ("", "policy", "poddisruptionbudgets", "watch") in seen
    assert (".", "coordination.k8s.io", "leases", "patch") in seen
    assert isinstance(USES[-1], Use) and len(USES) > 100


@pytest.mark.parametrize("gate", [gate.name for gate in ALL_GATES])
@pytest.mark.parametrize("provider", ["kwok", "sim"])
async def test_definitions_of_the_needed_kinds_can_be_read_and_no_others(gate: str, provider: str) -> None:
    """Start-up reads whether our kinds are served; other definitions are none of its business."""
    field = next(found.field for found in ALL_GATES if found.name == gate)
    settings = Settings(feature_gates=FeatureGates(**{field: True}))
    plugin = load_plugin(provider)
    built = needed_permissions(settings, plugin.permissions({}))
    named = {name for item in built if (item.group, item.resource) == DEFINITIONS for name in item.names}
    clock = SystemClock()
    made = await plugin.build(StoreApi(Store(clock)), clock, {})
    assert named == {f"{kind.plural}.{kind.group}" for kind in needed_kinds(settings, made.provider.traits)}


def test_dangerous_rights_are_not_given() -> None:
    """Secrets and ConfigMaps of the whole cluster, writes to workloads, escalation: never, with everything on."""
    everything = FeatureGates(**{gate.field: True for gate in ALL_GATES})
    given = needed_permissions(
        Settings(feature_gates=everything, ignore_dra_requests=False), load_plugin("kwok").permissions({})
    )
    cluster_wide = [item for item in given if not item.namespace]
    assert not {"secrets", "serviceaccounts"} & {item.resource for item in given}
    assert "configmaps" not in {item.resource for item in cluster_wide}
    # One ConfigMap of the own namespace is read and changed; creating cannot be bound to a name.
    own = [item for item in given if item.resource == "configmaps"]
    assert [(item.verbs, item.names) for item in own] == [(("create",), ()), (("get", "patch"), (MEMORY_NAME,))]
    assert not {"*"} & {value for item in given for value in (item.group, item.resource, *item.verbs)}
    workloads = [item for item in cluster_wide if item.group in ("apps", "batch")]
    assert all(set(item.verbs) <= {"get", "list", "watch"} for item in workloads)
    assert not any(item.group == "rbac.authorization.k8s.io" for item in given)
    leases = [item for item in given if item.resource == kinds.LEASE.plural]
    assert leases and all(item.namespace for item in leases)
