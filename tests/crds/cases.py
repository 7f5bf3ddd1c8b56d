"""For every rule of the CRDs one object that is accepted and one that is refused, with the field that is named.

The same table runs on the in-process store and on a real API server. A case changes one place of a valid object;
`Update` cases change it after creation, `Status` cases through the status subresource.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
MISSING = object()


def node_pool() -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "case"},
        "spec": {"template": {"metadata": {}, "spec": {"nodeClassRef": dict(REF), "requirements": []}}},
    }


def node_claim() -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "case"},
        "spec": {"nodeClassRef": dict(REF), "requirements": []},
    }


def node_overlay() -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "case"},
        "spec": {"requirements": []},
    }


def capacity_buffer() -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "case", "namespace": "default"},
        "spec": {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "percentage": 10},
    }


def kwok_node_class() -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "case"},
        "spec": {},
    }


BASES = {
    "nodepools": node_pool,
    "nodeclaims": node_claim,
    "nodeoverlays": node_overlay,
    "capacitybuffers": capacity_buffer,
    "kwoknodeclasses": kwok_node_class,
}


@dataclass(frozen=True)
class Case:
    """`path` is where values are put, `rule_path` and `facet` are the rule as `rules_of` names it."""

    plural: str
    rule_path: str
    facet: str
    path: str
    accepted: Any
    refused: Any
    field: str
    # "create", "update" (the valid object exists first) or "status".
    how: str = "create"

    @property
    def rule(self) -> tuple[str, str, str]:
        return self.plural, self.rule_path, self.facet

    def __str__(self) -> str:
        return f"{self.plural}-{self.rule_path}-{self.facet}"


def edited(plural: str, path: str, value: Any) -> dict[str, Any]:
    """The valid object with one place changed, or removed when the value is MISSING."""
    body = BASES[plural]()
    place = body
    *parents, last = path.split(".")
    for name in parents:
        place = place.setdefault(name, {})
    if value is MISSING:
        place.pop(last, None)
    else:
        place[last] = copy.deepcopy(value)
    return body


def _cel(crds: Iterable[dict[str, Any]], plural: str, path: str, contains: str) -> str:
    from tests.crds.rules import rules_of

    found = [
        facet
        for crd in crds
        for where, at, facet in rules_of(crd)
        if where == plural and at == path and facet.startswith("rule ") and contains in facet
    ]
    assert len(found) == 1, f"{plural} {path}: {contains!r} names {len(found)} rules"
    return found[0]


class Table:
    """Collects the cases; CEL rules are named by a part of their text."""

    def __init__(self, crds: list[dict[str, Any]]) -> None:
        self.crds = crds
        self.cases: list[Case] = []

    def add(self, plural: str, rule_path: str, facet: str, path: str, accepted: Any, refused: Any, **more: Any) -> None:
        if facet.startswith("rule "):
            facet = _cel(self.crds, plural, rule_path, facet.removeprefix("rule "))
        more.setdefault("field", rule_path.replace("[]", "[0]"))
        self.cases.append(Case(plural, rule_path, facet, path, accepted, refused, **more))

    def text(self, plural: str, path: str, facet: str, accepted: Any, refused: Any, **more: Any) -> None:
        """A rule on a plain field: the value is put where the rule is."""
        self.add(plural, path, facet, path, accepted, refused, **more)


def requirement_cases(table: Table, plural: str, prefix: str) -> None:
    path = f"{prefix}.requirements"
    overlay, pool = plural == "nodeoverlays", plural == "nodepools"

    def item(facet: str, accepted: Any, refused: Any, part: str = "", field: str | None = None) -> None:
        good = {"key": "a", "operator": "Exists"}
        field = f"{path}[1]{part}" if field is None else field
        table.add(plural, f"{path}[]{part}", facet, path, [good, accepted], [good, refused], field=field)

    def key(facet: str, accepted: str, refused: str) -> None:
        item(facet, {"key": accepted, "operator": "Exists"}, {"key": refused, "operator": "Exists"}, ".key")

    def need(operator: str, *values: str, **more: Any) -> dict[str, Any]:
        return {"key": "b", "operator": operator, **({"values": list(values)} if values else {}), **more}

    key("pattern", "example.com/Team_1", "not a name")
    key("maxLength", "k" * 316, "k" * 317)
    key("rule ?karpenter[.]sh", "karpenter.sh/capacity-type", "karpenter.sh/own")
    key("rule ?karpenter[.]sh", "pykarpenter.sh/own", "sub.karpenter.sh/own")
    key("rule hostname", "kubernetes.io/arch", "kubernetes.io/hostname")
    if not overlay:
        key("rule kwok", "karpenter.kwok.sh/instance-cpu", "karpenter.kwok.sh/own")
    item("enum", need("Lte", "5"), need("Near"), ".operator")
    item("required key", need("Exists"), {"operator": "Exists"}, field=f"{path}[1].key")
    item("required operator", need("Exists"), {"key": "b"}, field=f"{path}[1].operator")
    item("rule 'In' || (has", need("In", "x"), need("In"))
    item("rule 'Gt'", need("Gt", "0"), need("Lt", "1", "2"))
    item("rule 'Gt'", need("Gte", "10"), need("Lte", "ten"))
    if overlay:
        item("rule 'NotIn' ||", need("NotIn", "x"), need("NotIn"))
    else:
        item("rule minValues", need("In", "x", "y", minValues=2), need("In", "x", minValues=2))
        item("minimum", need("Exists", minValues=1), need("Exists", minValues=0), ".minValues")
        item("maximum", need("Exists", minValues=50), need("Exists", minValues=51), ".minValues")
    for facet, accepted, refused in (("pattern", "a_b", "-a"), ("maxLength", "v" * 63, "v" * 64)):
        lists = [[need("In", value)] for value in (accepted, refused)]
        table.add(plural, f"{path}[].values[]", facet, path, *lists, field=f"{path}[0].values[0]")
    hundred = [need("Exists") for _ in range(100)]
    table.text(plural, path, "maxItems", hundred, [*hundred, need("Exists")], field=path)
    table.add(plural, prefix, "required requirements", path, [], MISSING, field=path)
    if pool:
        key("rule ?karpenter[.]sh", "karpenter.sh/capacity-type", "karpenter.sh/nodepool")
    else:
        key("rule ?karpenter[.]sh", "karpenter.sh/nodepool", "karpenter.sh/registered")


def claim_cases(table: Table, plural: str, prefix: str) -> None:
    requirement_cases(table, plural, prefix)
    for name in ("taints", "startupTaints"):
        path = f"{prefix}.{name}"

        def taint(facet: str, accepted: Any, refused: Any, part: str, path: str = path) -> None:
            where = f"{path}[]" if facet.startswith("required") else f"{path}[]{part}"
            table.add(plural, where, facet, path, [accepted], [refused], field=f"{path}[0]{part}")

        good = {"key": "example.com/a", "effect": "NoExecute"}
        taint("pattern", good, good | {"key": "a b"}, ".key")
        taint("minLength", good, good | {"key": ""}, ".key")
        taint("pattern", good | {"value": "v"}, good | {"value": "a b"}, ".value")
        taint("enum", good, good | {"effect": "Never"}, ".effect")
        taint("required key", good, {"effect": "NoExecute"}, ".key")
        taint("required effect", good, {"key": "a"}, ".effect")
    ref = f"{prefix}.nodeClassRef"
    for name in ("group", "kind", "name"):
        table.text(plural, f"{ref}.{name}", "rule self != ''", "x", "")
        table.add(plural, ref, f"required {name}", f"{ref}.{name}", "x", MISSING, field=f"{ref}.{name}")
    table.text(plural, f"{ref}.group", "pattern", "example.com", "example.com/v1")
    table.add(plural, prefix, "required nodeClassRef", ref, REF, MISSING, field=ref)
    table.text(plural, f"{prefix}.terminationGracePeriod", "pattern", "1h30m", "Never")
    table.text(plural, f"{prefix}.expireAfter", "pattern", "Never", "30d")


def quantity_cases(table: Table, plural: str, path: str, how: str = "create") -> None:
    more: dict[str, Any] = {"field": f"{path}.example.com/gpu", "how": how}
    for accepted, refused in (({"example.com/gpu": "1.5Gi"}, "abc"), ({"example.com/gpu": 8}, "1 Gi")):
        table.add(plural, f"{path}{{}}", "pattern", path, accepted, {"example.com/gpu": refused}, **more)


def condition_cases(table: Table, plural: str, empty_reason: bool = False) -> None:
    path = "status.conditions"
    good = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }

    def condition(facet: str, part: str, accepted: Any, refused: Any) -> None:
        lists = [
            [good | {part: value} if value is not MISSING else _without(good, part)] for value in (accepted, refused)
        ]
        where = f"{path}[]" if facet.startswith("required") else f"{path}[].{part}"
        table.add(plural, where, facet, path, *lists, field=f"{path}[0].{part}", how="status")

    condition("pattern", "type", "example.com/Ready", "not ready")
    condition("maxLength", "type", "T" * 316, "T" * 317)
    condition("enum", "status", "Unknown", "Maybe")
    condition("pattern", "reason", "" if empty_reason else "NodeNotFound", "not found")
    condition("maxLength", "reason", "R" * 1024, "R" * 1025)
    if not empty_reason:
        condition("minLength", "reason", "R", "")
    condition("maxLength", "message", "m" * 32768, "m" * 32769)
    condition("minimum", "observedGeneration", 0, -1)
    for name in ("type", "status", "lastTransitionTime", *(() if empty_reason else ("reason", "message"))):
        condition(f"required {name}", name, good[name], MISSING)
    more: dict[str, Any] = {"field": f"{path}[1]", "how": "status"}
    table.add(plural, path, "unique", path, [good, good | {"type": "Other"}], [good, good], **more)


def _without(item: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != name}


def node_pool_cases(table: Table) -> None:
    plural = "nodepools"
    claim_cases(table, plural, "spec.template.spec")
    table.add(plural, "", "required spec", "spec", node_pool()["spec"], MISSING, field="spec")
    table.add(
        plural,
        "spec",
        "required template",
        "spec.template",
        node_pool()["spec"]["template"],
        MISSING,
        field="spec.template",
    )
    spec = "spec.template.spec"
    table.add(
        plural, "spec.template", "required spec", spec, node_pool()["spec"]["template"]["spec"], MISSING, field=spec
    )
    ref = f"{spec}.nodeClassRef"
    for name in ("group", "kind"):
        more: dict[str, Any] = {"field": ref, "how": "update"}
        table.add(
            plural, ref, f"rule self.{name} == oldSelf", ref, REF | {"name": "other"}, REF | {name: "other"}, **more
        )
    labels = "spec.template.metadata.labels"
    table.add(plural, f"{labels}{{}}", "pattern", labels, {"a": ""}, {"a": "b c"}, field=f"{labels}.a")
    table.add(plural, f"{labels}{{}}", "maxLength", labels, {"a": "v" * 63}, {"a": "v" * 64}, field=f"{labels}.a")
    hundred = {f"l{number}": "x" for number in range(100)}
    table.text(plural, labels, "maxProperties", hundred, hundred | {"more": "x"})
    table.text(plural, labels, "rule matches", {"karpenter.sh/capacity-type": "spot"}, {"karpenter.sh/own": "x"})
    table.text(
        plural, labels, "rule !('karpenter.sh/nodepool'", {"example.com/nodepool": "x"}, {"karpenter.sh/nodepool": "x"}
    )
    table.text(plural, labels, "rule hostname", {"kubernetes.io/arch": "x"}, {"kubernetes.io/hostname": "x"})
    quantity_cases(table, plural, "spec.limits")
    table.text(plural, "spec.weight", "minimum", 1, 0)
    table.text(plural, "spec.weight", "maximum", 100, 101)
    table.text(plural, "spec.replicas", "minimum", 0, -1)
    base = node_pool()["spec"]
    static = base | {"replicas": 1}
    table.text(plural, "spec", "rule oldSelf.replicas", base | {"weight": 1}, static, how="update")
    table.text(
        plural, "spec", "rule 'nodes' in", static | {"limits": {"nodes": "5"}}, static | {"limits": {"cpu": "5"}}
    )
    table.text(plural, "spec", "rule self.weight", static, static | {"weight": 5})
    disruption_cases(table, plural)
    quantity_cases(table, plural, "status.resources", how="status")
    condition_cases(table, plural)


def disruption_cases(table: Table, plural: str) -> None:
    table.text(plural, "spec.disruption.consolidateAfter", "pattern", "Never", "1d")
    table.text(plural, "spec.disruption.consolidationPolicy", "enum", "Balanced", "Always")
    path = "spec.disruption.budgets"

    def budget(facet: str, accepted: Any, refused: Any, part: str = "", field: str | None = None) -> None:
        field = f"{path}[0]{part.replace('[]', '[0]')}" if field is None else field
        table.add(
            plural, f"{path}[]{part}", facet, path, [{"nodes": "1"} | accepted], [{"nodes": "1"} | refused], field=field
        )

    for refused in ("101%", "-1", "5.5"):
        budget("pattern", {"nodes": "100%"}, {"nodes": refused}, ".nodes")
    budget("enum", {"reasons": ["Unhealthy"]}, {"reasons": ["Bored"]}, ".reasons[]")
    reasons = ["Empty", "Drifted"]
    budget("unique", {"reasons": reasons}, {"reasons": [*reasons, "Empty"]}, ".reasons", f"{path}[0].reasons[2]")
    budget("maxItems", {"reasons": reasons}, {"reasons": ["Empty"] * 51}, ".reasons")
    budget(
        "pattern",
        {"schedule": "0 9 * * mon-fri", "duration": "8h"},
        {"schedule": "daily", "duration": "8h"},
        ".schedule",
    )
    budget(
        "pattern", {"schedule": "@daily", "duration": "1h30m"}, {"schedule": "@daily", "duration": "1d"}, ".duration"
    )
    budget("rule has(self.schedule)", {"schedule": "@daily", "duration": "8h"}, {"schedule": "@daily"})
    fifty = [{"nodes": "1"}] * 50
    table.text(plural, path, "maxItems", fifty, [*fifty, {"nodes": "1"}])


def node_claim_cases(table: Table) -> None:
    plural = "nodeclaims"
    claim_cases(table, plural, "spec")
    spec = node_claim()["spec"]
    table.add(plural, "", "required spec", "spec", spec, MISSING, field="spec")
    table.text(plural, "spec", "rule self == oldSelf", spec, spec | {"expireAfter": "1h"}, how="update")
    quantity_cases(table, plural, "spec.resources.requests")
    quantity_cases(table, plural, "status.capacity", how="status")
    quantity_cases(table, plural, "status.allocatable", how="status")
    condition_cases(table, plural, empty_reason=True)


def node_overlay_cases(table: Table) -> None:
    plural = "nodeoverlays"
    requirement_cases(table, plural, "spec")
    spec = node_overlay()["spec"]
    table.add(plural, "", "required spec", "spec", spec, MISSING, field="spec")
    table.text(plural, "spec.price", "pattern", "0.25", "cheap")
    for accepted, refused in (("+0.05", "0.05"), ("-100%", "-101%"), ("+150%", "10%")):
        table.text(plural, "spec.priceAdjustment", "pattern", accepted, refused)
    table.text(
        plural, "spec", "rule priceAdjustment", spec | {"price": "1"}, spec | {"price": "1", "priceAdjustment": "+1"}
    )
    for name in ("cpu", "memory", "ephemeral-storage", "pods"):
        table.text(plural, "spec.capacity", "rule 'cpu' in", {"smarter-devices/fuse": "1"}, {name: "1"})
    quantity_cases(table, plural, "spec.capacity")
    table.text(plural, "spec.weight", "minimum", 1, 0)
    table.text(plural, "spec.weight", "maximum", 10000, 10001)
    condition_cases(table, plural)


def capacity_buffer_cases(table: Table) -> None:
    plural = "capacitybuffers"
    template, scalable = {"podTemplateRef": {"name": "t"}}, capacity_buffer()["spec"]
    table.add(plural, "", "required spec", "spec", scalable, MISSING, field="spec")
    table.text(plural, "spec", "rule has(self.limits)", template | {"limits": {"cpu": "1"}}, template)
    table.text(
        plural, "spec", "rule has(self.scalableRef)", template | {"replicas": 1}, template | scalable | {"replicas": 1}
    )
    ref = "spec.scalableRef"
    for name in ("kind", "name"):
        table.text(plural, f"{ref}.{name}", "minLength", "x", "")
        table.add(plural, ref, f"required {name}", f"{ref}.{name}", "x", MISSING, field=f"{ref}.{name}")
    table.text(plural, "spec.replicas", "minimum", 0, -1)
    table.text(plural, "spec.percentage", "minimum", 0, -1)
    quantity_cases(table, plural, "spec.limits")
    sized = {"replicas": 1}
    for how, root in (("create", "spec"), ("status", "status")):
        ref = f"{root}.podTemplateRef"
        name: dict[str, Any] = {"field": f"{ref}.name", "how": how}
        good = sized | {"podTemplateRef": {"name": "t"}}
        table.add(plural, f"{ref}.name", "minLength", root, good, sized | {"podTemplateRef": {"name": ""}}, **name)
        table.add(plural, ref, "required name", root, good, sized | {"podTemplateRef": {}}, **name)
    condition_cases(table, plural)


def kwok_cases(table: Table) -> None:
    table.text("kwoknodeclasses", "spec.nodeRegistrationDelay", "pattern", "10s", "soon")
    condition_cases(table, "kwoknodeclasses")


def all_cases(crds: list[dict[str, Any]]) -> list[Case]:
    table = Table(crds)
    for fill in (node_pool_cases, node_claim_cases, node_overlay_cases, capacity_buffer_cases, kwok_cases):
        fill(table)
    return table.cases


def bodies(case: Case) -> Iterator[tuple[dict[str, Any], bool]]:
    """(object, whether it is accepted), for both sides of the case."""
    yield edited(case.plural, case.path, case.accepted), True
    yield edited(case.plural, case.path, case.refused), False
