"""CEL selectors: what they see of a device, and what Kubernetes' libraries add."""

from __future__ import annotations

import sys

import pytest

from pykarpenter.core.devices import selectors
from pykarpenter.core.devices.pools import PoolDevice, gather
from pykarpenter.core.devices.selectors import EngineMissing, Selector, SelectorError

from .support import DRIVER, device, spec


def sample() -> PoolDevice:
    fields = {
        "capacity": {"memory": {"value": "40Gi"}},
        "attributes": {
            "model": {"string": "a100"},
            "cores": {"int": 108},
            "mig": {"bool": True},
            "other.example.com/slot": {"int": 3},
            "firmware": {"version": "1.10.0-rc.2"},
        },
    }
    (pool,) = gather([spec(device("gpu-0", fields=fields))])
    return pool.devices[0]


A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'


@pytest.mark.promise("SCH-17.24")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f'device.driver == "{DRIVER}"', True),
        (f'{A}.model == "a100" && {A}.cores > 100 && {A}.mig', True),
        (f'{A}.model.startsWith("h")', False),
        ('device.attributes["other.example.com"].slot == 3', True),
        (f'"model" in {A} && !("maker" in {A})', True),
        ('"x" in device.attributes["unknown.example.com"]', False),
        ('"unknown.example.com" in device.attributes && device.attributes["unknown.example.com"].x', False),
        (f"has({A}.maker)", False),
        (f'cel.bind(a, {A}, a.model == "a100")', True),
        (f'{C}.memory.compareTo(quantity("40Gi")) == 0', True),
        (f'{C}.memory == quantity("40960Mi")', True),
        (f'{C}.memory.isGreaterThan(quantity("39Gi")) && {C}.memory.isLessThan(quantity("41Gi"))', True),
        (f'{C}.memory.sub(quantity("30Gi")).add(1).compareTo(quantity("10Gi")) > 0', True),
        ('isQuantity("1Gi") && !isQuantity("many")', True),
        (f"{C}.memory.asInteger() == 42949672960 && {C}.memory.sign() == 1", True),
        (f'{A}.firmware.isLessThan(semver("1.10.0"))', True),
        (f'{A}.firmware.isGreaterThan(semver("1.9.9")) && {A}.firmware.isGreaterThan(semver("1.10.0-rc.1"))', True),
        (f"{A}.firmware.major() == 1 && {A}.firmware.minor() == 10 && {A}.firmware.patch() == 0", True),
        ('semver("v1.2", true) == semver("1.2.0") && isSemver("1.2.3") && !isSemver("1.2")', True),
        ("device.allowMultipleAllocations", False),
    ],
)
def test_selectors_see_driver_attributes_and_capacity(expression: str, expected: bool) -> None:
    assert Selector(expression).matches(sample()) is expected


@pytest.mark.parametrize("expression", [f"{A}.missing == 1", f'{A}.cores.isLessThan(semver("1.0.0"))', "device.driver"])
def test_a_selector_that_fails_on_a_device_says_so(expression: str) -> None:
    """The scheduler fails the machine then; guessing would buy machines for nothing."""
    with pytest.raises(SelectorError) as caught:
        Selector(expression).matches(sample())
    assert expression in str(caught.value) or "found no matching overload" in str(caught.value)


def test_what_the_engine_does_not_know_is_refused_when_read() -> None:
    with pytest.raises(SelectorError, match="inventory"):
        Selector("inventory(device)")


def test_without_the_engine_a_selector_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    selectors._environment.cache_clear()
    try:
        with pytest.raises(EngineMissing, match=r"pykarpenter\[devices\]"):
            Selector("true")
    finally:
        selectors._environment.cache_clear()
