"""What an API server refuses in a pod spec, with the same field paths, for pods and for templates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pykarpenter.sim.schema.field_errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from pykarpenter.sim.store.admission.container_parts import host_port_errors, part_errors, user_errors
from pykarpenter.sim.store.admission.resource_lists import first_unreadable, requirement_errors
from pykarpenter.sim.store.entries import Json
from pykarpenter.sim.store.metadata import (
    SUBDOMAIN,
    SUBDOMAIN_RULE,
    label_errors,
    label_value_problem,
    qualified_name_problem,
)

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_CHOICES = {
    "restartPolicy": ["Always", "OnFailure", "Never"],
    "dnsPolicy": ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    "preemptionPolicy": ["PreemptLowerPriority", "Never"],
}
_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def unreadable_amount(spec: Json, path: str) -> tuple[str, Any] | None:
    """The first quantity in a pod spec that is no number."""
    lists = [(f"{path}.overhead", spec.get("overhead"))]
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            resources = container.get("resources") or {}
            for part in ("requests", "limits"):
                lists.append((f"{path}.{field}[{index}].resources.{part}", resources.get(part)))
    return next((found for where, quantities in lists if (found := first_unreadable(where, quantities))), None)


def pod_spec_errors(spec: Json, path: str = "spec") -> list[FieldError]:
    """Everything refused in a pod spec whose types are right, in the order an API server tells it."""
    return [
        *_volume_errors(spec, path),
        *_container_errors(spec, path),
        *_choice_errors(spec, path),
        *label_errors(f"{path}.nodeSelector", spec.get("nodeSelector") or {}),
        *user_errors(spec.get("securityContext") or {}, f"{path}.securityContext"),
        *_affinity_errors(spec.get("affinity") or {}, f"{path}.affinity"),
        *_gate_errors(spec, path),
        *_spread_errors(spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints"),
        *_name_errors(spec, path),
        *_toleration_errors(spec.get("tolerations") or [], f"{path}.tolerations"),
    ]


def _choice_errors(spec: Json, path: str) -> Iterator[FieldError]:
    for field, choices in _CHOICES.items():
        value = spec.get(field)
        if value is not None and value not in choices:
            yield not_supported(f"{path}.{field}", value, choices)


def _gate_errors(spec: Json, path: str) -> Iterator[FieldError]:
    seen = []
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        where, name = f"{path}.schedulingGates[{index}]", gate.get("name", "")
        if problem := qualified_name_problem(name):
            yield invalid_value(f"{where}.name", name, problem)
        if name in seen:
            yield duplicate(where, name)
        seen.append(name)


def _name_errors(spec: Json, path: str) -> Iterator[FieldError]:
    for field in ("serviceAccountName", "nodeName", "priorityClassName"):
        name = spec.get(field)
        if name and not SUBDOMAIN.fullmatch(name):
            yield invalid_value(f"{path}.{field}", name, SUBDOMAIN_RULE)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        detail = "must be between 1 and 2147483647, inclusive"
        yield invalid_value(f"{path}.activeDeadlineSeconds", deadline, detail)


def _container_errors(spec: Json, path: str) -> Iterator[FieldError]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    volumes = {volume.get("name", "") for volume in spec.get("volumes") or ()}
    names: list[str] = []
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            where, name = f"{path}.{field}[{index}]", container.get("name", "")
            if not name:
                yield required(f"{where}.name")
            elif not _DNS_LABEL.fullmatch(name):
                yield invalid_value(f"{where}.name", name, _LABEL_RULE)
            elif name in names:
                yield duplicate(f"{where}.name", name)
            names.append(name)
            if not container.get("image"):
                yield required(f"{where}.image")
            yield from requirement_errors(f"{where}.resources", container.get("resources") or {})
            yield from part_errors(container, where, volumes)
    yield from host_port_errors(spec.get("containers") or [], f"{path}.containers")


def _volume_errors(spec: Json, path: str) -> Iterator[FieldError]:
    names: list[str] = []
    for index, volume in enumerate(spec.get("volumes") or ()):
        name, where = volume.get("name", ""), f"{path}.volumes[{index}]"
        if not name:
            yield required(f"{where}.name")
        elif not _DNS_LABEL.fullmatch(name):
            yield invalid_value(f"{where}.name", name, _LABEL_RULE)
        elif name in names:
            yield duplicate(f"{where}.name", name)
        names.append(name)
        sources = [field for field in volume if field != "name" and volume[field] is not None]
        for field in sources[1:]:
            yield forbidden_field(f"{where}.{field}", "may not specify more than 1 volume type")
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            yield required(f"{where}.persistentVolumeClaim.claimName")


def effect_errors(effect: str, path: str) -> Iterator[FieldError]:
    if effect not in _EFFECTS:
        yield not_supported(path, effect, _EFFECTS)


def _toleration_errors(tolerations: list[Json], path: str) -> Iterator[FieldError]:
    for index, toleration in enumerate(tolerations):
        where, operator = f"{path}[{index}]", toleration.get("operator", "")
        key, value, effect = toleration.get("key", ""), toleration.get("value", ""), toleration.get("effect", "")
        if key and (problem := qualified_name_problem(key)):
            yield invalid_value(f"{where}.key", key, problem)
        if not key and operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid_value(f"{where}.operator", operator, detail)
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            yield invalid_value(f"{where}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator in ("Equal", ""):
            if problem := label_value_problem(value):
                yield invalid_value(f"{where}.operator", value, problem)
        elif operator != "Exists":
            yield not_supported(f"{where}.operator", operator, ["Equal", "Exists"])
        elif value:
            yield invalid_value(f"{where}.operator", value, "value must be empty when `operator` is 'Exists'")
        if effect:
            yield from effect_errors(effect, f"{where}.effect")


def _affinity_errors(affinity: Json, path: str) -> Iterator[FieldError]:
    node = affinity.get("nodeAffinity") or {}
    where = f"{path}.nodeAffinity.{_REQUIRED}"
    if _REQUIRED in node:
        terms = node[_REQUIRED].get("nodeSelectorTerms") or []
        if not terms:
            yield required(f"{where}.nodeSelectorTerms", "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _node_term_errors(term, f"{where}.nodeSelectorTerms[{index}]")
    for index, preferred in enumerate(node.get(_PREFERRED) or ()):
        below = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
        yield from _weight_errors(preferred, below)
        yield from _node_term_errors(preferred.get("preference") or {}, f"{below}.preference")
    for field in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(field) or {}
        for index, term in enumerate(terms.get(_REQUIRED) or ()):
            yield from _pod_term_errors(term, f"{path}.{field}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(terms.get(_PREFERRED) or ()):
            below = f"{path}.{field}.{_PREFERRED}[{index}]"
            yield from _weight_errors(weighted, below)
            yield from _pod_term_errors(weighted.get("podAffinityTerm") or {}, f"{below}.podAffinityTerm")


def _weight_errors(term: Json, path: str) -> Iterator[FieldError]:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        yield invalid_value(f"{path}.weight", weight, "must be in the range 1-100")


def _node_term_errors(term: Json, path: str) -> Iterator[FieldError]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        yield from _expression_errors(expression, f"{path}.matchExpressions[{index}]", _NODE_OPERATORS)
    for index, expression in enumerate(term.get("matchFields") or ()):
        where, values = f"{path}.matchFields[{index}]", expression.get("values") or []
        if expression.get("key") != "metadata.name":
            yield invalid_value(f"{where}.key", expression.get("key", ""), "not a valid field selector key")
        if expression.get("operator") not in ("In", "NotIn"):
            yield invalid_value(f"{where}.operator", expression.get("operator", ""), "not a valid selector operator")
        elif len(values) != 1:
            detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            yield required(f"{where}.values", detail)


def _expression_errors(expression: Json, path: str, operators: tuple[str, ...]) -> Iterator[FieldError]:
    operator, values = expression.get("operator", ""), expression.get("values") or []
    if operator not in operators:
        yield invalid_value(f"{path}.operator", operator, "not a valid selector operator")
    elif operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_field(f"{path}.values", detail)
    elif len(values) != 1:
        yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    key = expression.get("key", "")
    if problem := qualified_name_problem(key):
        yield invalid_value(f"{path}.key", key, problem)
    for index, value in enumerate(values):
        if problem := label_value_problem(value):
            yield invalid_value(f"{path}.values[{index}]", value, problem)


def selector_errors(selector: Json | None, path: str) -> Iterator[FieldError]:
    """Refusals in a LabelSelector."""
    if not selector:
        return
    yield from label_errors(f"{path}.matchLabels", selector.get("matchLabels") or {})
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from _expression_errors(expression, f"{path}.matchExpressions[{index}]", _LABEL_OPERATORS)


def _pod_term_errors(term: Json, path: str) -> Iterator[FieldError]:
    yield from selector_errors(term.get("labelSelector"), f"{path}.labelSelector")
    yield from selector_errors(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    key = term.get("topologyKey", "")
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    elif problem := qualified_name_problem(key):
        yield invalid_value(f"{path}.topologyKey", key, problem)


def _spread_errors(constraints: list[Json], path: str) -> Iterator[FieldError]:
    for index, constraint in enumerate(constraints):
        where, policy = f"{path}[{index}]", constraint.get("whenUnsatisfiable", "")
        skew, key = constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        if skew <= 0:
            yield invalid_value(f"{where}.maxSkew", skew, "must be greater than zero")
        if not key:
            yield required(f"{where}.topologyKey", "can not be empty")
        if policy not in ("DoNotSchedule", "ScheduleAnyway"):
            yield not_supported(f"{where}.whenUnsatisfiable", policy, ["DoNotSchedule", "ScheduleAnyway"])
        for other in constraints[index + 1 :]:
            if (other.get("topologyKey"), other.get("whenUnsatisfiable")) == (key, policy):
                yield duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {policy}}}")
                break
        if (domains := constraint.get("minDomains")) is not None:
            if domains <= 0:
                yield invalid_value(f"{where}.minDomains", domains, "must be greater than zero")
            if policy != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {policy}"
                yield invalid_value(f"{where}.minDomains", domains, detail)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(field, "Honor") not in ("Honor", "Ignore"):
                yield not_supported(f"{where}.{field}", constraint[field], ["Honor", "Ignore"])
        if constraint.get("matchLabelKeys") and constraint.get("labelSelector") is None:
            detail = "must not be specified when labelSelector is not set"
            yield forbidden_field(f"{where}.matchLabelKeys", detail)
        yield from selector_errors(constraint.get("labelSelector"), f"{where}.labelSelector")
