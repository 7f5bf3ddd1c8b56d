"""Host ports: what a pod binds on its node, and which pods cannot share one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pykarpenter.api.pods import PodSpec

_UNSPECIFIED = frozenset({"0.0.0.0", "::"})  # noqa: S104 - addresses to compare, not to bind


class HostPort(NamedTuple):
    """One port of the node that a pod takes."""

    ip: str
    port: int
    protocol: str

    def conflicts(self, other: HostPort) -> bool:
        if self.port != other.port or self.protocol != other.protocol:
            return False
        return self.ip == other.ip or self.ip in _UNSPECIFIED or other.ip in _UNSPECIFIED

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}/{self.protocol}"


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """The host ports of the containers; init containers have given theirs back when the pod runs."""
    found = {
        HostPort(port.host_ip or "0.0.0.0", port.host_port, port.protocol or "TCP")  # noqa: S104
        for container in spec.containers
        for port in container.ports
        if port.host_port
    }
    return tuple(sorted(found))


def first_conflict(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> HostPort | None:
    """The first wanted port that something else already holds."""
    held = tuple(taken)
    for port in wanted:
        if any(port.conflicts(other) for other in held):
            return port
    return None
