"""Numbers of pods that may also be written as a share, such as 25%: what an API server refuses in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykarpenter.sim.schema.field_errors import FieldError, invalid_value

_PERCENT_RULE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
    "regex used for validation is '[0-9]+%')"
)


def share_errors(value: Any, path: str, *, at_most_all: bool = True) -> Iterator[FieldError]:
    """Negative numbers, texts that are no percentage and, unless allowed, more than 100%."""
    if isinstance(value, int) and value < 0:
        yield invalid_value(path, value, "must be greater than or equal to 0")
    elif isinstance(value, str):
        number = value[:-1] if value.endswith("%") else ""
        if not number.isdigit():
            yield invalid_value(path, value, _PERCENT_RULE)
        elif at_most_all and int(number) > 100:
            yield invalid_value(path, value, "must not be greater than 100%")


def is_nothing(value: Any) -> bool:
    """Zero, or a share of zero."""
    return value == 0 or (isinstance(value, str) and value.rstrip("%").isdigit() and int(value.rstrip("%")) == 0)
