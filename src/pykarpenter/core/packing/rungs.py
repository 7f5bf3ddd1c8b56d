"""One rung of a class's relaxation ladder, made ready for placing: requirement ids and topology groups."""

from __future__ import annotations

from dataclasses import dataclass

from pykarpenter.api.pods import Toleration
from pykarpenter.core.requirements import Requirements
from pykarpenter.core.topology.groups import Group


@dataclass(slots=True, eq=False)
class Consulted:
    """A group that a class must obey, and whether a pod of the class counts in it once placed."""

    group: Group
    counts_itself: bool


@dataclass(slots=True, eq=False)
class Rung:
    """What the class insists on at this point."""

    # Requirement ids to merge into a machine, one per volume alternative; the first that works is taken.
    guests: tuple[int, ...]
    strict: Requirements
    tolerations: tuple[Toleration, ...]
    # Rules over hostnames, and rules over other keys.
    hosts: list[Consulted]
    zonal: list[Consulted]
    given_up: str = ""

    @property
    def keys(self) -> list[str]:
        return sorted({item.group.rule.key for item in self.zonal})
