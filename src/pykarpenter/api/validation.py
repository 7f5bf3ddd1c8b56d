"""What an API server cannot refuse, or did not because the object comes from a file: every problem of an object.

Pure: an object in, a list of problems out, each with field path, value and remedy. Errors keep a NodePool from being
ready; warnings are told and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pykarpenter.api import labels, patterns
from pykarpenter.api.duration import NEVER, InvalidDuration, parse_duration
from pykarpenter.api.extras import NodeOverlay
from pykarpenter.api.labels import LabelRules
from pykarpenter.api.nodepool import NodeClaim, NodeClaimSpec, NodeClaimTemplateSpec, NodeClassReference, NodePool
from pykarpenter.api.nodes import Taint
from pykarpenter.api.pods import NodeSelectorRequirement
from pykarpenter.api.quantity import InvalidQuantity, parse_quantity

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
BOUNDS = ("Gt", "Lt", "Gte", "Lte")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
ERROR, WARNING = "error", "warning"

# Below these a pool replaces nodes faster than they start; 0s for consolidateAfter is Karpenter's default.
_SHORT_EXPIRY_S = 3600.0
_SHORT_CONSOLIDATION_S = 30.0


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or (as a warning) probably not meant."""

    path: str
    value: object
    message: str
    severity: str = ERROR

    def text(self) -> str:
        if self.severity == WARNING:
            return f"{self.path}: {_shown(self.value)} {self.message}"
        return f"{self.path}: invalid value {_shown(self.value)}: {self.message}"


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def errors(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == ERROR]


def validate_node_pool(pool: NodePool, rules: LabelRules = labels.DEFAULT_RULES) -> list[Problem]:
    """Every problem of a NodePool that its schema does not cover; budgets are judged apart, they never block."""
    spec = pool.spec.template.spec
    path = "spec.template.spec"
    return [
        *_pool_name(pool.metadata.name),
        *template_labels(pool.spec.template.metadata.labels, "spec.template.metadata.labels", rules),
        *_annotations(pool.spec.template.metadata.annotations, "spec.template.metadata.annotations"),
        *_claim_fields(spec, path, rules, in_pool=True),
        *limits(pool.spec.limits, "spec.limits"),
        *_churn(pool),
    ]


def validate_node_claim(claim: NodeClaim, rules: LabelRules = labels.DEFAULT_RULES) -> list[Problem]:
    return [
        *_claim_fields(claim.spec, "spec", rules, in_pool=False),
        *quantities(claim.spec.resources.requests, "spec.resources.requests"),
    ]


def validate_node_overlay(overlay: NodeOverlay, rules: LabelRules = labels.DEFAULT_RULES) -> list[Problem]:
    spec = overlay.spec
    found = [
        *requirements(spec.requirements, "spec.requirements", rules, in_pool=False),
        *quantities(spec.capacity, "spec.capacity"),
    ]
    for name, value, pattern in (
        ("price", spec.price, patterns.PRICE),
        ("priceAdjustment", spec.price_adjustment, patterns.PRICE_ADJUSTMENT),
    ):
        if value is not None and not patterns.matches(pattern, value):
            found.append(Problem(f"spec.{name}", value, "is no price; write 0.25, +0.05 or -10%"))
    for name in sorted(set(spec.capacity) & set(labels.WELL_KNOWN_RESOURCES)):
        found.append(
            Problem(f"spec.capacity.{name}", spec.capacity[name], "comes from the provider and cannot be overlaid")
        )
    return found


def _pool_name(name: str) -> Iterator[Problem]:
    if len(name) > patterns.LABEL_VALUE_MAX:
        yield Problem(
            "metadata.name",
            name,
            f"is longer than {patterns.LABEL_VALUE_MAX} characters and cannot be the value of {labels.NODEPOOL} "
            "on nodes; choose a shorter name",
        )


def label_key(key: str) -> str | None:
    """What is wrong with a label key, or None."""
    prefix, slash, name = key.rpartition("/")
    if not patterns.matches(patterns.QUALIFIED_NAME, key):
        return "is not a valid label key; use letters, digits, '-', '_' and '.', optionally after a DNS name and '/'"
    if slash and len(prefix) > patterns.LABEL_PREFIX_MAX:
        return f"has more than {patterns.LABEL_PREFIX_MAX} characters before the '/'; shorten it"
    if len(name) > patterns.LABEL_NAME_MAX:
        return f"has a name of more than {patterns.LABEL_NAME_MAX} characters; shorten it"
    return None


def label_value(value: str) -> str | None:
    """What is wrong with a label value, or None."""
    if len(value) > patterns.LABEL_VALUE_MAX:
        return f"has more than {patterns.LABEL_VALUE_MAX} characters; shorten it"
    if not patterns.matches(patterns.LABEL_VALUE, value):
        return (
            "is not a valid label value; use letters, digits, '-', '_' and '.', beginning and ending with the first two"
        )
    return None


def restricted(key: str, rules: LabelRules) -> str | None:
    """Why users may not use a key, with what they can use instead; None when they may."""
    if not rules.is_restricted(rules.normalise(key)):
        return None
    if key == labels.HOSTNAME:
        return f"names a single node and cannot be used here; use {labels.ZONE} or a label of your own domain"
    domain = key.partition("/")[0]
    open_keys = sorted(known for known in rules.well_known if known.partition("/")[0] == domain)
    allowed = [known for known in open_keys if known != labels.NODEPOOL]
    instead = f"use {', '.join(allowed)} or" if allowed else "use"
    return f"belongs to the reserved domain {domain}; {instead} a label of your own domain"


def template_labels(values: Mapping[str, str], path: str, rules: LabelRules) -> Iterator[Problem]:
    for key, value in values.items():
        where = f"{path}.{key}"
        if key == labels.NODEPOOL:
            yield Problem(where, value, "is set by the controller; use a label of your own domain")
        elif wrong := label_key(key) or restricted(key, rules):
            yield Problem(where, key, wrong)
        if wrong := label_value(value):
            yield Problem(where, value, wrong)


def _annotations(values: Mapping[str, str], path: str) -> Iterator[Problem]:
    """An API server would refuse every NodeClaim with such a key; annotations may have capitals in their domain."""
    for key in values:
        if wrong := label_key(key.lower()):
            yield Problem(f"{path}.{key}", key, wrong.replace("label", "annotation"))


def _claim_fields(
    spec: NodeClaimTemplateSpec | NodeClaimSpec, path: str, rules: LabelRules, *, in_pool: bool
) -> Iterator[Problem]:
    yield from class_reference(spec.node_class_ref, f"{path}.nodeClassRef")
    yield from taints(spec.taints, spec.startup_taints, path)
    yield from requirements(spec.requirements, f"{path}.requirements", rules, in_pool=in_pool)
    yield from _duration(spec.termination_grace_period, f"{path}.terminationGracePeriod")
    if spec.expire_after != NEVER:
        yield from _duration(spec.expire_after, f"{path}.expireAfter")


def class_reference(ref: NodeClassReference, path: str) -> Iterator[Problem]:
    for name, value in (("group", ref.group), ("kind", ref.kind), ("name", ref.name)):
        if not value:
            yield Problem(f"{path}.{name}", value, "may not be empty; name the provider's class")


def taints(kept: Sequence[Taint], startup: Sequence[Taint], path: str) -> Iterator[Problem]:
    """Names and effects, and no key and effect twice, in either list or across both."""
    seen: dict[tuple[str, str], str] = {}
    for name, listed in (("taints", kept), ("startupTaints", startup)):
        for index, taint in enumerate(listed):
            where = f"{path}.{name}[{index}]"
            if wrong := label_key(taint.key):
                yield Problem(f"{where}.key", taint.key, wrong)
            if taint.value and (wrong := label_value(taint.value)):
                yield Problem(f"{where}.value", taint.value, wrong)
            if taint.effect not in TAINT_EFFECTS:
                yield Problem(f"{where}.effect", taint.effect, f"is no effect; use one of {', '.join(TAINT_EFFECTS)}")
            identity = (taint.key, taint.effect)
            if identity in seen:
                yield Problem(
                    where,
                    f"{taint.key}:{taint.effect}",
                    f"duplicates the taint at {seen[identity]}; remove one of the two",
                )
            seen.setdefault(identity, where)


def requirements(
    items: Sequence[NodeSelectorRequirement], path: str, rules: LabelRules, *, in_pool: bool
) -> Iterator[Problem]:
    for index, item in enumerate(items):
        yield from requirement(item, f"{path}[{index}]", rules, in_pool=in_pool)


def requirement(item: NodeSelectorRequirement, path: str, rules: LabelRules, *, in_pool: bool) -> Iterator[Problem]:
    key = rules.normalise(item.key)
    if in_pool and key == labels.NODEPOOL:
        yield Problem(f"{path}.key", item.key, "cannot be required in a NodePool, whose nodes carry its own name")
    elif wrong := label_key(key) or restricted(key, rules):
        yield Problem(f"{path}.key", item.key, wrong)
    if item.operator not in OPERATORS:
        yield Problem(f"{path}.operator", item.operator, f"is no operator; use one of {', '.join(OPERATORS)}")
    for index, value in enumerate(item.values):
        if wrong := label_value(value):
            yield Problem(f"{path}.values[{index}]", value, wrong)
    yield from _values(item, path)
    if key == labels.CAPACITY_TYPE and item.operator == "In":
        yield from _capacity_types(item, path)


def _values(item: NodeSelectorRequirement, path: str) -> Iterator[Problem]:
    count = len(item.values)
    if item.operator == "In" and not count:
        yield Problem(f"{path}.values", [], "operator In needs at least one value; use Exists to accept any value")
    if item.operator in BOUNDS and not (count == 1 and _is_natural(item.values[0])):
        yield Problem(
            f"{path}.values", item.values, f"operator {item.operator} needs exactly one value, an integer of 0 or more"
        )
    if item.operator == "In" and item.min_values is not None and 0 < count < item.min_values:
        yield Problem(
            f"{path}.minValues", item.min_values, f"asks for more values than the {count} given; add values or lower it"
        )


def _capacity_types(item: NodeSelectorRequirement, path: str) -> Iterator[Problem]:
    """At least one known value; unknown ones beside it are no error, since providers may add their own."""
    known = [value for value in item.values if value in labels.CAPACITY_TYPES]
    unknown = [value for value in item.values if value not in labels.CAPACITY_TYPES]
    names = ", ".join(sorted(labels.CAPACITY_TYPES))
    if item.values and not known:
        yield Problem(f"{path}.values", item.values, f"has no known capacity type; use one of {names}")
    elif item.min_values is not None and len(known) < item.min_values <= len(item.values):
        yield Problem(
            f"{path}.minValues", item.min_values, f"asks for more than the {len(known)} known capacity types given"
        )
    elif unknown:
        yield Problem(f"{path}.values", unknown, f"are unknown capacity types; known are {names}", WARNING)


def _is_natural(value: str) -> bool:
    return value.isascii() and value.isdigit() and int(value) < 2**63


def _duration(text: str | None, path: str) -> Iterator[Problem]:
    if text is None:
        return
    try:
        negative = parse_duration(text) < 0
    except InvalidDuration as error:
        yield Problem(path, text, error.remedy)
        return
    if negative:
        yield Problem(path, text, "is negative; write a duration of 0s or more")


def quantities(values: Mapping[str, str | int | float], path: str) -> Iterator[Problem]:
    for name, value in values.items():
        try:
            negative = parse_quantity(value) < 0
        except InvalidQuantity:
            yield Problem(f"{path}.{name}", value, "is no quantity; write 4, 500m, 16Gi or 1e3")
            continue
        if negative:
            yield Problem(f"{path}.{name}", value, "is negative; write 0 or more")


def limits(values: Mapping[str, str | int | float], path: str) -> Iterator[Problem]:
    """Quantities of known resources; a limit on a resource that no node can have never binds."""
    yield from quantities(values, path)
    for name in values:
        if not _is_known_resource(name):
            yield Problem(
                f"{path}.{name}",
                name,
                "is no resource that nodes have, so this limit never binds; limits know cpu, memory, "
                "ephemeral-storage, pods, nodes, hugepages-* and names with a domain such as example.com/gpu",
                WARNING,
            )


def _is_known_resource(name: str) -> bool:
    if name in (*labels.WELL_KNOWN_RESOURCES, "nodes"):
        return True
    return "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))


def _churn(pool: NodePool) -> Iterator[Problem]:
    expiry = _seconds(pool.spec.template.spec.expire_after)
    if expiry is not None and expiry < _SHORT_EXPIRY_S:
        yield Problem(
            "spec.template.spec.expireAfter",
            pool.spec.template.spec.expire_after,
            "replaces every node within the hour and pods with it; write 24h or more, or Never",
            WARNING,
        )
    pause = _seconds(pool.spec.disruption.consolidate_after)
    if pause is None and pool.spec.disruption.consolidate_after != NEVER:
        # No error: launches need not stop because of it.
        yield Problem(
            "spec.disruption.consolidateAfter",
            pool.spec.disruption.consolidate_after,
            "cannot be read, so no node of the pool is consolidated; write 30s, 10m, 1h30m or Never",
            WARNING,
        )
    if pause is not None and 0 < pause < _SHORT_CONSOLIDATION_S:
        yield Problem(
            "spec.disruption.consolidateAfter",
            pool.spec.disruption.consolidate_after,
            "may move pods again seconds after they came; write 1m or more to let nodes settle",
            WARNING,
        )


def _seconds(text: str | None) -> float | None:
    if text is None or text == NEVER:
        return None
    try:
        return parse_duration(text)
    except InvalidDuration:
        return None
