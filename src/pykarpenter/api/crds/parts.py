"""Schemas that several kinds share: requirements, taints, class references, durations and conditions.

Rules sit on the item they judge rather than on its list, so that a refusal names the index. Lengths and counts are
bounded wherever a rule reads them, since an API server refuses rules whose worst case is too dear.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykarpenter.api import labels, patterns
from pykarpenter.api.crds.schema import Schema, array, integer, mapping, rule, struct, text

MAX_REQUIREMENTS = 100
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_HOSTNAME = rule(
    f"self != '{labels.HOSTNAME}'",
    f"{labels.HOSTNAME} names a single node and cannot be required; "
    f"use {labels.ZONE} or {labels.INSTANCE_TYPE} to narrow nodes down",
)


def reserved_domain(domain: str, allowed: Sequence[str], value: str = "self") -> str:
    """CEL: the key's domain, the text before `/`, is not `domain` or below it, unless the key is one of `allowed`."""
    listed = ", ".join(f"'{key}'" for key in allowed)
    dotted = domain.replace(".", "[.]")
    return f"{value} in [{listed}] || !{value}.matches('^([^/]*[.])?{dotted}(/|$)')"


def domain_rule(domain: str, allowed: Sequence[str]) -> Schema:
    """The rule on a requirement's key that keeps a domain for its owner."""
    return rule(
        reserved_domain(domain, allowed),
        f"labels of the domain {domain} are reserved; allowed are: {', '.join(allowed)}",
    )


def key_rules(*, pool_label: bool, extra: Sequence[Schema] = ()) -> list[Schema]:
    """Rules on a requirement's key; outside NodePools the pool's own label may be required too."""
    allowed = [labels.CAPACITY_TYPE, labels.NODEPOOL] if pool_label else [labels.CAPACITY_TYPE]
    return [domain_rule(labels.GROUP, allowed), _HOSTNAME, *extra]


_IN_NEEDS_VALUES = rule(
    "self.operator != 'In' || (has(self.values) && size(self.values) > 0)",
    "operator In needs at least one value; use Exists to accept any value",
)
_NOT_IN_NEEDS_VALUES = rule(
    "self.operator != 'NotIn' || (has(self.values) && size(self.values) > 0)",
    "operator NotIn needs at least one value; use Exists to accept any value",
)
_BOUND_NEEDS_ONE_INTEGER = rule(
    "!(self.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(self.values) && size(self.values) == 1 "
    "&& self.values[0].matches('^[0-9]+$') && int(self.values[0]) >= 0)",
    "operators Gt, Lt, Gte and Lte need exactly one value, an integer of 0 or more",
)
_ENOUGH_FOR_MIN_VALUES = rule(
    "self.operator != 'In' || !has(self.minValues) || !has(self.values) || size(self.values) >= self.minValues",
    "operator In needs at least as many values as minValues asks for",
)


def requirements(keys: Sequence[Schema], *, min_values: bool = True, not_in_needs_values: bool = False) -> Schema:
    """A list of label requirements whose keys obey the given rules."""
    properties = {
        "key": text(
            "The label that nodes must or must not carry.",
            max_length=patterns.QUALIFIED_NAME_MAX,
            pattern=patterns.QUALIFIED_NAME,
            rules=keys,
        ),
        "operator": text("How the label's value is compared with `values`.", one_of=OPERATORS),
        "values": array(
            "Values for In and NotIn; one integer for Gt, Lt, Gte and Lte; none for Exists and DoesNotExist.",
            text("A label value.", max_length=patterns.LABEL_VALUE_MAX, pattern=patterns.LABEL_VALUE),
        ),
    }
    rules = [_IN_NEEDS_VALUES, _BOUND_NEEDS_ONE_INTEGER]
    if not_in_needs_values:
        rules.append(_NOT_IN_NEEDS_VALUES)
    if min_values:
        properties["minValues"] = integer(
            "How many different values the instance types considered for a launch must offer. Alpha.",
            fmt=None,
            minimum=1,
            maximum=50,
        )
        rules.append(_ENOUGH_FOR_MIN_VALUES)
    item = struct("One requirement on a label.", properties, required=("key", "operator"), rules=rules)
    return array("Requirements on the labels of nodes; all of them must hold.", item, max_items=MAX_REQUIREMENTS)


def taints(description: str) -> Schema:
    item = struct(
        "A taint: keeps away pods that do not tolerate it.",
        {
            "key": text("The taint's key.", min_length=1, pattern=patterns.QUALIFIED_NAME),
            "value": text("The taint's value.", pattern=patterns.QUALIFIED_NAME),
            "effect": text("What happens to pods that do not tolerate the taint.", one_of=TAINT_EFFECTS),
            "timeAdded": text("When the taint was added.", fmt="date-time"),
        },
        required=("key", "effect"),
    )
    return array(description, item)


def _non_empty(name: str, what: str, pattern: str | None = None) -> Schema:
    return text(what, pattern=pattern, rules=[rule("self != ''", f"{name} may not be empty")])


def node_class_ref(*, fixed_kind: bool) -> Schema:
    """The reference to a provider's class; in NodePools only its name may change later."""
    rules = [
        rule(
            f"self.{name} == oldSelf.{name}",
            f"{name} cannot change; make another NodePool to move to another kind of class",
        )
        for name in ("group", "kind")
    ]
    return struct(
        "The provider's class that describes how nodes are launched.",
        {
            "group": _non_empty("group", "API group of the class, without a version.", patterns.GROUP),
            "kind": _non_empty("kind", "Kind of the class."),
            "name": _non_empty("name", "Name of the class."),
        },
        required=("group", "kind", "name"),
        rules=rules if fixed_kind else (),
    )


def claim_fields(*, keys: Sequence[Schema], fixed_kind: bool) -> dict[str, Schema]:
    """What a NodePool's template and a NodeClaim have in common."""
    return {
        "nodeClassRef": node_class_ref(fixed_kind=fixed_kind),
        "requirements": requirements(keys),
        "taints": taints("Taints that nodes keep."),
        "startupTaints": taints("Taints that nodes start with and that something else removes before pods may run."),
        "terminationGracePeriod": text(
            "The longest time a drain may take. When it is over, the remaining pods are deleted even if a "
            "disruption budget or do-not-disrupt holds them. Unset: a drain may take for ever.",
            pattern=patterns.DURATION,
        ),
        "expireAfter": text(
            "How long a node may live before it is drained and removed, or Never.",
            pattern=patterns.DURATION_OR_NEVER,
            default="720h",
        ),
    }


def template_metadata() -> Schema:
    rules = [
        rule(
            # The pool's own label has a rule of its own below, with a better remedy.
            f"self.all(key, {reserved_domain(labels.GROUP, [labels.CAPACITY_TYPE, labels.NODEPOOL], 'key')})",
            f"labels of the domain {labels.GROUP} are reserved; allowed is: {labels.CAPACITY_TYPE}",
        ),
        rule(
            f"!('{labels.NODEPOOL}' in self)",
            f"{labels.NODEPOOL} is set by the controller; choose a label of your own domain",
        ),
        rule(
            f"!('{labels.HOSTNAME}' in self)",
            f"{labels.HOSTNAME} is set by the kubelet; choose a label of your own domain",
        ),
    ]
    value = text("A label value.", max_length=patterns.LABEL_VALUE_MAX, pattern=patterns.LABEL_VALUE)
    return struct(
        "Labels and annotations that every node of the pool gets.",
        {
            "labels": mapping("Labels for nodes.", value, max_properties=100, atomic=True, rules=rules),
            "annotations": mapping("Annotations for nodes.", {"type": "string"}),
        },
    )


def conditions(*, empty_reason: bool = False) -> Schema:
    """Status conditions, one per type. NodeClaims may leave reason and message out."""
    reason_pattern = patterns.CONDITION_REASON_OR_EMPTY if empty_reason else patterns.CONDITION_REASON
    item = struct(
        "One observed aspect of the object.",
        {
            "type": text("What is observed.", max_length=316, pattern=patterns.CONDITION_TYPE),
            "status": text("Whether it holds.", one_of=("True", "False", "Unknown")),
            "reason": text(
                "Why, in one word for programs.",
                min_length=None if empty_reason else 1,
                max_length=1024,
                pattern=reason_pattern,
            ),
            "message": text("Why, in a sentence for people.", max_length=32768),
            "lastTransitionTime": text("When the status last changed.", fmt="date-time"),
            "observedGeneration": integer("The generation of the object this was observed at.", minimum=0),
        },
        required=("type", "status", "lastTransitionTime")
        if empty_reason
        else ("type", "status", "reason", "message", "lastTransitionTime"),
    )
    return array("What has been observed about the object.", item, list_type="map", list_keys=("type",))
