"""Whether a pod tolerates a node's taints, by Kubernetes' own matching, numeric comparisons included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    if operator == "Exists":
        return True
    if not toleration.key:
        return False
    if operator == "Equal":
        return toleration.value == taint.value
    if operator in ("Gt", "Lt"):
        return _compares(operator, toleration.value, taint.value)
    return False


def _compares(operator: str, wanted: str, actual: str) -> bool:
    try:
        bound, value = int(wanted), int(actual)
    except ValueError:
        return False
    return value > bound if operator == "Gt" else value < bound


def first_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint, of any effect, that nothing tolerates."""
    for taint in taints:
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None
