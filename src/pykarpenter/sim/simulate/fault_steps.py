"""Fault steps of scenarios: names and arguments checked before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from pykarpenter.api.manifests import Document
from pykarpenter.sim.faults.actions import ACTIONS
from pykarpenter.sim.faults.stories import FAULTS, VARIANTS, Step

ACTION_NAMES = tuple(sorted(fault.action for fault in (*FAULTS.values(), *VARIANTS.values())))
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number of 0 or more"),
    "float": ((int, float), "a number of 0 or more"),
    "str": ((str,), "text"),
    "bool": ((bool,), "true or false"),
}
# What an argument may be where not every text makes sense, by (action, argument).
_CHOICES = {
    ("deny", "calls"): ("describe", "interruptions", "launch", "list", "reboot", "terminate"),
    ("spoil_prices", "how"): ("huge", "missing", "zero"),
    ("garble_queue", "how"): ("delay", "disappear", "duplicate", "reorder"),
    ("unserve", "plural"): ("nodeclaims", "nodepools"),
}
_MAY_BE_NEGATIVE = frozenset({("skew_clock", "by_s")})
_SHARES = frozenset({"share"})


def read_fault(document: Document, field: str, at: float, action: object, args: object) -> Step:
    """The step of a fault; raises ManifestError."""
    if action not in ACTION_NAMES:
        raise document.error(field, action, f"unknown fault; known are {', '.join(ACTION_NAMES)}")
    name = str(action)
    parameters = {p.name: p for p in inspect.signature(ACTIONS[name]).parameters.values() if p.name != "world"}
    needed = [p.name for p in parameters.values() if p.default is inspect.Parameter.empty]
    # `steps[0].fault` and `steps[0].with` are neighbours.
    place = f"{field.rpartition('.')[0]}.with"
    takes = f"the fault {name} takes: {', '.join(parameters) or 'nothing'}"
    if not isinstance(args, Mapping):
        raise document.error(place, args, takes)
    if set(args) - set(parameters) or set(needed) - set(args):
        raise document.error(place, sorted(map(str, args)), takes)
    for key, value in args.items():
        _check(document, f"{place}.{key}", (name, str(key)), str(parameters[key].annotation), value)
    return Step(at, name, dict(args))


def _check(document: Document, field: str, what: tuple[str, str], annotation: str, value: object) -> None:
    types, words = _TYPES[annotation]
    if not isinstance(value, types) or (isinstance(value, bool) and annotation != "bool"):
        raise document.error(field, value, f"give {words}")
    choices = _CHOICES.get(what)
    if choices is not None and value not in choices:
        raise document.error(field, value, f"give one of {', '.join(choices)}")
    if isinstance(value, int | float) and value < 0 and what not in _MAY_BE_NEGATIVE:
        raise document.error(field, value, f"give {words}")
    if isinstance(value, int | float) and what[1] in _SHARES and value > 1:
        raise document.error(field, value, "give a share between 0 and 1")
