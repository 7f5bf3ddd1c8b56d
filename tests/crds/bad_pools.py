"""NodePools of the bad-input catalogue that an API server refuses: row, fields to set, and the field it must name."""

from __future__ import annotations

from typing import Any

from tests.crds.cases import node_pool


def _need(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def _budget(**fields: str) -> dict[str, Any]:
    return {"disruption": {"budgets": [{"nodes": "1"}, {"nodes": "1", **fields}]}}


def _template(**spec: Any) -> dict[str, Any]:
    return {"template": {"spec": {**node_pool()["spec"]["template"]["spec"], **spec}}}


def _labels(key: str) -> dict[str, Any]:
    return {"template": {**node_pool()["spec"]["template"], "metadata": {"labels": {key: "x"}}}}


_SECOND_BUDGET = "spec.disruption.budgets[1]"
_SECOND_REQUIREMENT = "spec.template.spec.requirements[1]"
_TEMPLATE_LABELS = "spec.template.metadata.labels"

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("b2", _budget(schedule="@daily"), _SECOND_BUDGET),
    ("b2", _budget(duration="1h"), _SECOND_BUDGET),
    ("b3", _budget(nodes="101%"), f"{_SECOND_BUDGET}.nodes"),
    ("b3", _budget(nodes="-1"), f"{_SECOND_BUDGET}.nodes"),
    ("b3", _budget(nodes="5.5"), f"{_SECOND_BUDGET}.nodes"),
    ("b5", _template(requirements=[_need("a", "Exists"), _need("a", "In")]), _SECOND_REQUIREMENT),
    ("b5", _template(requirements=[_need("a", "Exists"), _need("a", "Gt", "1", "2")]), _SECOND_REQUIREMENT),
    ("b5", _template(requirements=[_need("a", "Exists"), _need("a", "Lt", "few")]), _SECOND_REQUIREMENT),
    ("b7", _labels("karpenter.sh/nodepool"), _TEMPLATE_LABELS),
    ("b7", _labels("karpenter.sh/custom"), _TEMPLATE_LABELS),
    ("b7", _labels("kubernetes.io/hostname"), _TEMPLATE_LABELS),
    ("b10", {"limits": {"cpu": "abc"}}, "spec.limits.cpu"),
    ("b12", {"replicas": 1, "weight": 5}, "spec"),
]


def bad_pool(fields: dict[str, Any]) -> dict[str, Any]:
    body = node_pool()
    body["metadata"]["name"] = "bad"
    body["spec"].update(fields)
    return body
