"""CEL selectors of DeviceClasses and requests: whether a device is one of those asked for.

The engine is loaded with the first selector, so that everything without selectors works without it. An expression
that cannot be compiled is refused when its claim is read; one that fails on a device fails the machine it was tried
on, as it would in the scheduler.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from pykarpenter.core.devices.cel_values import declarations

if TYPE_CHECKING:
    from pykarpenter.core.devices.pools import PoolDevice

# Kubernetes serves these CEL libraries by default.
_LIBRARIES = ("strings", "optional", "sets", "math", "lists", "encoders", "bindings", "two-var-comprehensions")
_DOMAIN = re.compile(r"""\.(attributes|capacity)\s*\[\s*(?:"([^"]*)"|'([^']*)')\s*\]""")


class SelectorError(ValueError):
    """A selector that cannot be compiled, or that fails on a device."""


class EngineMissing(SelectorError):
    """The CEL engine is not installed."""


@cache
def _environment() -> Any:
    try:
        from cel_expr_python import cel
    except ImportError as error:
        raise EngineMissing(
            "device selectors need the CEL engine, which is not installed; install pykarpenter[devices]"
        ) from error
    listed = "\n".join(f"- name: {name}" for name in _LIBRARIES)
    config = cel.NewEnvConfigFromYaml(f"name: devices\nextensions:\n{listed}\n")
    return cel.NewEnv(config=config, variables={"device": cel.Type.DYN}, functions=declarations(cel))


class Selector:
    """One compiled expression."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        environment = _environment()
        try:
            self._program = environment.compile(expression)
        except (RuntimeError, ValueError, TypeError) as error:
            raise SelectorError(f"selector {expression[:200]!r}: {_first_line(error)}") from error
        # A domain that a device does not have reads as empty, not as an error.
        self._domains = [(found[1], found[2] or found[3] or "") for found in _DOMAIN.finditer(expression)]

    def matches(self, device: PoolDevice) -> bool:
        data = device.cel_data()
        for table, domain in self._domains:
            if domain not in data[table] and not self._asks_for(domain):
                data = {**data, table: {**data[table], domain: {}}}
        try:
            result = self._program.eval(data={"device": data})
        except (RuntimeError, ValueError, OverflowError) as error:
            raise SelectorError(self._failed(device, _first_line(error))) from error
        value = result.plain_value()
        if not isinstance(value, bool):
            raise SelectorError(self._failed(device, str(value)))
        return value

    def _asks_for(self, domain: str) -> bool:
        """Whether the expression itself asks if the domain is there."""
        return re.search(rf"""["']{re.escape(domain)}["']\s+in\s""", self.expression) is not None

    def _failed(self, device: PoolDevice, reason: str) -> str:
        return f"selector {self.expression[:200]!r} failed on device {device.id.text}: {reason}"


@lru_cache(maxsize=4096)
def compiled(expression: str) -> Selector:
    """The selector of an expression; raises SelectorError."""
    return Selector(expression)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
