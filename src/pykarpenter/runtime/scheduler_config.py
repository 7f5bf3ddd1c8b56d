"""`--scheduler-config`: the default topology spread constraints, read strictly.

Unknown fields and values that kube-scheduler would not take stop the program: a constraint silently dropped would
spread workloads differently from what the operator wrote.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from pykarpenter.api.pods import TopologySpreadConstraint

_QUALIFIED_NAME = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_FIELDS = {
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "labelSelector",
    "matchLabelKeys",
}
_POLICIES = ("Honor", "Ignore")


class _Loader(yaml.SafeLoader):
    """Refuses a key that is written twice, of which one would be dropped in silence."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [str(key.value) for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} is written twice")
        return super().construct_mapping(node, deep)


def parse_scheduler_config(text: str) -> tuple[TopologySpreadConstraint, ...]:
    """The default constraints; raises ValueError with every problem and its path."""
    if not text.strip():
        return ()
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader that is stricter
    except yaml.YAMLError as error:
        raise ValueError(f"neither YAML nor JSON: {' '.join(str(error).split())}") from None
    problems: list[str] = []
    spread = _section(document, "", ("podTopologySpread",), problems).get("podTopologySpread")
    listed = _section(spread, "podTopologySpread", ("defaultConstraints",), problems).get("defaultConstraints")
    if listed is not None and not isinstance(listed, list):
        problems.append("podTopologySpread.defaultConstraints: expected a list")
        listed = None
    constraints = [
        _constraint(item, f"podTopologySpread.defaultConstraints[{index}]", problems)
        for index, item in enumerate(listed or [])
    ]
    seen: set[tuple[str, str]] = set()
    for index, item in enumerate(constraints):
        pair = (item.topology_key, item.when_unsatisfiable)
        if pair in seen:
            problems.append(
                f"podTopologySpread.defaultConstraints[{index}]: duplicate of topologyKey {pair[0]!r} with {pair[1]}"
            )
        seen.add(pair)
    if problems:
        raise ValueError("; ".join(problems))
    return tuple(constraints)


def _section(value: Any, path: str, known: tuple[str, ...], problems: list[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(f"{path or 'document'}: expected a mapping")
        return {}
    prefix = f"{path}." if path else ""
    problems.extend(f"{prefix}{key}: unknown field" for key in value if key not in known)
    return value


def _constraint(value: Any, path: str, problems: list[str]) -> TopologySpreadConstraint:
    fields = _section(value, path, tuple(sorted(_FIELDS)), problems)
    skew: Any = fields.get("maxSkew")
    if not _is_int(skew) or skew <= 0:
        problems.append(f"{path}.maxSkew: expected an integer above 0, got {skew!r}")
        skew = 1
    key: Any = fields.get("topologyKey")
    if not isinstance(key, str) or not _QUALIFIED_NAME.fullmatch(key):
        problems.append(f"{path}.topologyKey: expected a label key, got {key!r}")
        key = ""
    action: Any = fields.get("whenUnsatisfiable")
    if action not in ("DoNotSchedule", "ScheduleAnyway"):
        problems.append(f"{path}.whenUnsatisfiable: expected DoNotSchedule or ScheduleAnyway, got {action!r}")
        action = ""
    problems.extend(
        f"{path}.{name}: not allowed in a default constraint, the selector is deduced per pod"
        for name, given in (
            ("labelSelector", "labelSelector" in fields),
            ("matchLabelKeys", fields.get("matchLabelKeys")),
        )
        if given
    )
    domains: Any = fields.get("minDomains")
    if domains is not None and (not _is_int(domains) or domains <= 0):
        problems.append(f"{path}.minDomains: expected an integer above 0, got {domains!r}")
        domains = None
    elif domains is not None and action == "ScheduleAnyway":
        problems.append(f"{path}.minDomains: only allowed with whenUnsatisfiable DoNotSchedule")
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if fields.get(name) not in (None, *_POLICIES):
            problems.append(f"{path}.{name}: expected Honor or Ignore, got {fields[name]!r}")
    return TopologySpreadConstraint(
        max_skew=skew,
        topology_key=key,
        when_unsatisfiable=action,
        min_domains=domains,
        node_affinity_policy=fields.get("nodeAffinityPolicy"),
        node_taints_policy=fields.get("nodeTaintsPolicy"),
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
