"""What an API server refuses inside one container beside its resources: ports, mounts, environment, probes, handlers.

Called for pods and for templates; paths are those of the whole object. Types were checked before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pykarpenter.sim.schema.field_errors import (
    FieldError,
    duplicate,
    invalid_value,
    not_found_value,
    not_supported,
    required,
)
from pykarpenter.sim.store.entries import Json

_PORT_RANGE = "must be between 1 and 65535, inclusive"
_USER_RANGE = "must be between 0 and 2147483647, inclusive"
_PULL_POLICIES = ["Always", "IfNotPresent", "Never"]
_RESTARTS = ["Always", "Never", "OnFailure"]
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_LONGEST_PORT_NAME = 15


def part_errors(container: Json, path: str, volumes: set[str]) -> Iterator[FieldError]:
    """Everything refused in a container; `volumes` are the names of those that the pod has."""
    policy = container.get("imagePullPolicy")
    if policy is not None and policy not in _PULL_POLICIES:
        yield not_supported(f"{path}.imagePullPolicy", policy, _PULL_POLICIES)
    restarts = container.get("restartPolicy")
    if restarts is not None and restarts not in _RESTARTS:
        yield not_supported(f"{path}.restartPolicy", restarts, _RESTARTS)
    yield from _port_errors(container.get("ports") or [], f"{path}.ports")
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield required(f"{path}.env[{index}].name")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{path}.volumeMounts[{index}]"
        if not mount.get("name"):
            yield required(f"{where}.name")
        if mount.get("name") not in volumes:
            yield not_found_value(f"{where}.name", mount.get("name", ""))
        if not mount.get("mountPath"):
            yield required(f"{where}.mountPath")
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(field) is not None:
            yield from _probe_errors(container[field], f"{path}.{field}")
    for field in ("postStart", "preStop"):
        handler = (container.get("lifecycle") or {}).get(field)
        if handler is not None:
            yield from _handler_errors(handler, f"{path}.lifecycle.{field}")
    yield from user_errors(container.get("securityContext") or {}, f"{path}.securityContext")


def user_errors(context: Json, path: str) -> Iterator[FieldError]:
    """The identities of a security context, of a container or of a pod."""
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        number = context.get(field)
        if number is not None and not 0 <= number <= 2**31 - 1:
            yield invalid_value(f"{path}.{field}", number, _USER_RANGE)


def _port_errors(ports: list[Json], path: str) -> Iterator[FieldError]:
    names: list[str] = []
    for index, port in enumerate(ports):
        where, name = f"{path}[{index}]", port.get("name")
        if name:
            yield from _port_name_errors(name, names, f"{where}.name")
            names.append(name)
        number = port.get("containerPort")
        if number is None:
            yield required(f"{where}.containerPort")
        elif not 1 <= number <= 65535:
            yield invalid_value(f"{where}.containerPort", number, _PORT_RANGE)
        host = port.get("hostPort", 0)
        if host and not 1 <= host <= 65535:
            yield invalid_value(f"{where}.hostPort", host, _PORT_RANGE)
        if port.get("protocol", "TCP") not in ("TCP", "UDP", "SCTP"):
            yield not_supported(f"{where}.protocol", port["protocol"], ["SCTP", "TCP", "UDP"])


def _port_name_errors(name: str, names: list[str], path: str) -> Iterator[FieldError]:
    if len(name) > _LONGEST_PORT_NAME:
        yield invalid_value(path, name, f"must be no more than {_LONGEST_PORT_NAME} characters")
    elif not re.fullmatch(r"[-a-z0-9]+", name):
        yield invalid_value(path, name, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    elif not re.search(r"[a-z]", name):
        yield invalid_value(path, name, "must contain at least one letter (a-z)")
    elif name in names:
        yield duplicate(path, name)


def host_port_errors(containers: list[Json], path: str) -> Iterator[FieldError]:
    """No two containers of a pod take the same port of its node."""
    taken = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            shown = f"{port.get('protocol', 'TCP')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if shown in taken:
                yield duplicate(f"{path}[{index}].ports[{number}].hostPort", shown)
            taken.add(shown)


def _probe_errors(probe: Json, path: str) -> Iterator[FieldError]:
    yield from _handler_errors(probe, path)
    for field in _PROBE_NUMBERS:
        if probe.get(field, 0) < 0:
            yield invalid_value(f"{path}.{field}", probe[field], "must be greater than or equal to 0")


def _handler_errors(handler: Json, path: str) -> Iterator[FieldError]:
    stated = [field for field in _HANDLERS if handler.get(field) is not None]
    if not stated:
        yield required(path, "must specify a handler type")
    for field in ("httpGet", "tcpSocket", "grpc"):
        if field in stated:
            port = handler[field].get("port", 0)
            if isinstance(port, int) and not 1 <= port <= 65535:
                yield invalid_value(f"{path}.{field}.port", port, _PORT_RANGE)
