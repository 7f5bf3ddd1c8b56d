"""Quantities and versions as the CEL engine sees them: small maps, with the functions of Kubernetes' two libraries.

The engine has no types of its own to lend, so a quantity is `{"quantity": "<fraction>"}` and a version
`{"semver": "<canonical text>"}`; equal amounts have equal maps, so `==` means what it means in Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from pykarpenter.api.quantity import InvalidQuantity, parse_quantity

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_LOOSE = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?([-+].*)?")

Value = dict[str, str]


def quantity(text: str) -> Value:
    return as_quantity(parse_quantity(text))


def as_quantity(amount: Fraction) -> Value:
    return {"quantity": str(amount)}


def is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except InvalidQuantity:
        return False
    return True


def semver(text: str, normalize: bool = False) -> Value:
    matched = _SEMVER.fullmatch(_normalized(text) if normalize else text)
    if matched is None:
        raise ValueError(f"{text!r} is not a semantic version such as 1.2.3")
    core, pre_release = ".".join(matched.groups()[:3]), matched[4]
    return {"semver": f"{core}-{pre_release}" if pre_release else core}


def is_semver(text: str, normalize: bool = False) -> bool:
    try:
        semver(text, normalize)
    except ValueError:
        return False
    return True


def _normalized(text: str) -> str:
    matched = _LOOSE.fullmatch(text)
    if matched is None:
        return text
    numbers = [str(int(part or 0)) for part in matched.groups()[:3]]
    return ".".join(numbers) + (matched[4] or "")


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1; only like can be compared with like."""
    if "quantity" in left and "quantity" in right:
        return _sign(Fraction(left["quantity"]) - Fraction(right["quantity"]))
    if "semver" in left and "semver" in right:
        first, second = _precedence(left), _precedence(right)
        return (first > second) - (first < second)
    raise ValueError(f"cannot compare {_kind(left)} with {_kind(right)}")


def _precedence(value: Value) -> tuple[Any, ...]:
    core, _, pre_release = value["semver"].partition("-")
    numbers = tuple(int(part) for part in core.split("."))
    parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pre_release.split(".")) if pre_release else ()
    # A release comes after its pre-releases.
    return numbers, not pre_release, parts


def _kind(value: Value) -> str:
    return next((name for name in ("quantity", "semver") if name in value), "a map")


def _amount(value: Value) -> Fraction:
    if "quantity" not in value:
        raise ValueError(f"expected a quantity, found {_kind(value)}")
    return Fraction(value["quantity"])


def _sign(number: Fraction) -> int:
    return (number > 0) - (number < 0)


def _whole(value: Value) -> int:
    amount = _amount(value)
    if amount.denominator != 1:
        raise ValueError("the quantity is not an integer")
    return int(amount)


def _part(index: int) -> Callable[[Value], int]:
    def part(value: Value) -> int:
        if "semver" not in value:
            raise ValueError(f"expected a version, found {_kind(value)}")
        return int(value["semver"].partition("-")[0].split(".")[index])

    return part


def declarations(cel: Any) -> list[Any]:
    """The functions of both libraries, as declarations for the engine."""
    kinds = cel.Type
    text, number, boolean, value = kinds.STRING, kinds.INT, kinds.BOOL, kinds.Map(kinds.DYN, kinds.DYN)

    def function(name: str, *overloads: tuple[Any, list[Any], bool, Callable[..., Any]]) -> Any:
        made = [
            cel.Overload(f"{name}_{i}", result, takes, member, run)
            for i, (result, takes, member, run) in enumerate(overloads)
        ]
        return cel.FunctionDecl(name, made)

    both = [value, value]
    return [
        function("quantity", (value, [text], False, quantity)),
        function("isQuantity", (boolean, [text], False, is_quantity)),
        function("semver", (value, [text], False, semver), (value, [text, boolean], False, semver)),
        function("isSemver", (boolean, [text], False, is_semver), (boolean, [text, boolean], False, is_semver)),
        function("compareTo", (number, both, True, compare)),
        function("isGreaterThan", (boolean, both, True, lambda a, b: compare(a, b) > 0)),
        function("isLessThan", (boolean, both, True, lambda a, b: compare(a, b) < 0)),
        function(
            "add",
            (value, both, True, lambda a, b: as_quantity(_amount(a) + _amount(b))),
            (value, [value, number], True, lambda a, b: as_quantity(_amount(a) + b)),
        ),
        function(
            "sub",
            (value, both, True, lambda a, b: as_quantity(_amount(a) - _amount(b))),
            (value, [value, number], True, lambda a, b: as_quantity(_amount(a) - b)),
        ),
        function("sign", (number, [value], True, lambda a: _sign(_amount(a)))),
        function("isInteger", (boolean, [value], True, lambda a: _amount(a).denominator == 1)),
        function("asInteger", (number, [value], True, _whole)),
        function("asApproximateFloat", (kinds.DOUBLE, [value], True, lambda a: float(_amount(a)))),
        function("major", (number, [value], True, _part(0))),
        function("minor", (number, [value], True, _part(1))),
        function("patch", (number, [value], True, _part(2))),
    ]
