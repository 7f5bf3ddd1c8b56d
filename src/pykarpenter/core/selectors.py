"""Whether a label selector matches a set of labels, by Kubernetes' own rules."""

from __future__ import annotations

from collections.abc import Mapping

from pykarpenter.api.meta import LabelSelector, LabelSelectorRequirement


def selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """An absent selector matches nothing, an empty one everything; an unknown operator matches nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_expression_matches(expression, labels) for expression in selector.match_expressions)


def _expression_matches(expression: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    present = expression.key in labels
    if expression.operator == "In":
        return present and labels[expression.key] in expression.values
    if expression.operator == "NotIn":
        return not present or labels[expression.key] not in expression.values
    if expression.operator == "Exists":
        return present
    if expression.operator == "DoesNotExist":
        return not present
    return False
