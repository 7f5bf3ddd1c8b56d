"""Constraints between the devices of a claim: equal attributes, known now or only once the machine runs.

Where a device carries the attribute, all its partners must carry the same value. Where nobody knows it yet, the
provider may have said which devices will agree; such bindings are transitive. A constraint goes by one or the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykarpenter.core.devices.demand import Match
from pykarpenter.core.devices.pools import DeviceId, PoolDevice, qualified
from pykarpenter.core.instance_types import AttributeBinding

# How a constraint is satisfied so far: by a known value, or by a group of devices bound together.
Bond = tuple[str, object] | None
Bonds = tuple[Bond, ...]


class Bindings:
    """Which devices of one machine are known to agree in an attribute."""

    def __init__(self, bindings: Iterable[AttributeBinding] = ()) -> None:
        self._root: dict[tuple[str, str, str], tuple[str, str, str]] = {}
        for binding in bindings:
            members = [(binding.attribute, driver, device) for driver, device in binding.devices]
            for member in members:
                self._root[self._find(member)] = self._find(members[0])

    def _find(self, member: tuple[str, str, str]) -> tuple[str, str, str]:
        root = self._root.setdefault(member, member)
        while self._root[root] != root:
            root = self._root[root]
        return root

    def group(self, attribute: str, device: DeviceId) -> tuple[str, str, str] | None:
        member = (attribute, device.driver, device.name)
        return self._find(member) if member in self._root else None

    def groups_of(self, device: DeviceId) -> tuple[tuple[str, str, str], ...]:
        """Every group the device is in: devices in different groups are not alike."""
        if not self._root:
            return ()
        return tuple(
            sorted(self._find(member) for member in list(self._root) if member[1:] == (device.driver, device.name))
        )


def joined(
    matches: tuple[Match, ...], bonds: Bonds, option: str, device: PoolDevice, bindings: Bindings
) -> Bonds | None:
    """The bonds once the device serves the option; None when it does not agree with the others."""
    if not matches:
        return bonds
    found = list(bonds)
    for index, match in enumerate(matches):
        if not match.concerns(option):
            continue
        bond = _bond(qualified(match.attribute, device.id.driver), device, bindings)
        if bond is None or (found[index] is not None and found[index] != bond):
            return None
        found[index] = bond
    return tuple(found)


def _bond(attribute: str, device: PoolDevice, bindings: Bindings) -> Bond:
    known = device.attributes.get(attribute)
    if known is not None:
        return ("value", known)
    group = bindings.group(attribute, device.id)
    return ("bound", group) if group is not None else None
