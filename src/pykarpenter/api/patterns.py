"""The patterns that Karpenter's fields must match: one place for the CRD manifests and for runtime validation.

They are written for a search, as an API server uses them: each anchors itself. All of them mean the same in Python
and in RE2.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"

QUALIFIED_NAME = rf"^({_SUBDOMAIN}(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
GROUP = r"^[^/]*$"

DURATION = r"^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER = r"^(([0-9]+(s|m|h))+|Never)$"

BUDGET_NODES = r"^((100|[0-9]{1,2})%|[0-9]+)$"
# The alternation is looser than it looks (`@dailyx` passes): kept, since manifests that pass today must pass
# tomorrow; what the parser refuses shows up in the condition BudgetsParsed.
BUDGET_SCHEDULE = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$"
BUDGET_DURATION = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"

PRICE = r"^\d+(\.\d+)?$"
PRICE_ADJUSTMENT = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"

_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"

CONDITION_TYPE = rf"^({_SUBDOMAIN}/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
CONDITION_REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
CONDITION_REASON_OR_EMPTY = r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$"

LABEL_VALUE_MAX = 63
LABEL_PREFIX_MAX = 253
LABEL_NAME_MAX = 63
QUALIFIED_NAME_MAX = LABEL_PREFIX_MAX + LABEL_NAME_MAX


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    # `$` in Python also matches before a final newline, and `\d` other digits than ASCII; in RE2 they do not.
    return re.compile(pattern.replace("$", r"\Z"), re.ASCII)


def matches(pattern: str, value: str) -> bool:
    """Whether an API server would find the pattern in the value."""
    return _compiled(pattern).search(value) is not None
