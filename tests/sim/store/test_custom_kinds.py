"""Custom kinds: a definition serves its kind with defaults, pruning, validation and CEL."""

from typing import Any

import pytest

from pykarpenter.api.crds import crds
from pykarpenter.kube.errors import BadRequest, Invalid, NotFound
from pykarpenter.sim.schema.facets import violations
from pykarpenter.sim.store import WriteOptions

from .world import World, seen

SPEC_SCHEMA = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10, "format": "int32"},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
        "window": {"type": "string", "pattern": "^[0-9]+s$", "maxLength": 5},
        "amount": {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^[0-9]+$",
        },
        "tags": {
            "type": "array",
            "maxItems": 2,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key"],
            "items": {
                "type": "object",
                "required": ["key"],
                "properties": {
                    "key": {"type": "string", "maxLength": 20},
                    "value": {"type": "string", "default": "none", "maxLength": 20},
                },
                "x-kubernetes-validations": [
                    {"rule": "self.key != 'reserved'", "message": "key is reserved", "fieldPath": ".key"}
                ],
            },
        },
        "labels": {
            "type": "object",
            "maxProperties": 2,
            "additionalProperties": {
                "type": "string",
                "maxLength": 20,
                "x-kubernetes-validations": [{"rule": "self != ''", "message": "may not be empty"}],
            },
        },
        "free": {"type": "object", "maxProperties": 5, "x-kubernetes-preserve-unknown-fields": True},
        "when": {"type": "string", "format": "date-time"},
        "maybe": {"type": "string", "nullable": True, "maxLength": 20},
    },
    "x-kubernetes-validations": [
        {"rule": "self.size >= oldSelf.size", "message": "size only grows"},
        {
            "rule": "self.mode != 'fast' || self.size < 5",
            "messageExpression": "self.size > 6 ? 'far too small' : 'too small'",
        },
    ],
}
CRD: dict[str, Any] = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": SPEC_SCHEMA,
                            "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
                        },
                    }
                },
                "subresources": {"status": {}},
            }
        ],
    },
}


def widgets() -> World:
    world = World()
    world.store.create(world.kind("customresourcedefinitions"), CRD)
    return world


def refusal(spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Field and message of every cause."""
    with pytest.raises(Invalid) as refused:
        widgets().create("widgets", "w", spec=spec)
    return [(cause["field"], cause["message"]) for cause in refused.value.details["causes"]]


def test_a_definition_serves_its_kind_and_says_so() -> None:
    """Clients wait for Established before they create objects."""
    world = widgets()
    crd = world.get("customresourcedefinitions", "widgets.example.com")
    conditions = {item["type"]: item["status"] for item in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["acceptedNames"]["singular"] == "widget"
    assert world.kind("widgets").short_names == ("wd",)


def test_defaults_are_filled_in_and_unknown_fields_dropped() -> None:
    """What is stored is what the schema describes, at every depth."""
    made = widgets().create(
        "widgets",
        "w",
        spec={"size": 1, "colour": "red", "tags": [{"key": "a", "x": 1}], "free": {"any": {"thing": 1}}, "mode": None},
        extra=1,
    )
    assert made.obj["spec"] == {
        "size": 1,
        "mode": "slow",
        "tags": [{"key": "a", "value": "none"}],
        "free": {"any": {"thing": 1}},
    }
    assert "extra" not in made.obj


def test_nulls_stay_only_where_the_schema_allows_them() -> None:
    """A null elsewhere reads as absent."""
    made = widgets().create("widgets", "w", spec={"size": 1, "maybe": None, "window": None})
    assert made.obj["spec"] == {"size": 1, "maybe": None, "mode": "slow"}


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"size": 0}, "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 11}, "spec.size", "Invalid value: 11: spec.size in body should be less than or equal to 10"),
        (
            {"size": 1, "window": "x"},
            "spec.window",
            "Invalid value: \"x\": spec.window in body should match '^[0-9]+s$'",
        ),
        (
            {"size": 1, "window": "5s\n"},
            "spec.window",
            "Invalid value: \"5s\\n\": spec.window in body should match '^[0-9]+s$'",
        ),
        (
            {"size": 1, "amount": "x"},
            "spec.amount",
            "Invalid value: \"x\": spec.amount in body should match '^[0-9]+$'",
        ),
    ],
)
def test_a_facet_is_refused_with_path_and_value(spec: dict[str, Any], field: str, message: str) -> None:
    """The same words as a real API server's."""
    assert refusal(spec) == [(field, message)]


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({}, "spec.size", "Required value"),
        ({"size": "1"}, "spec.size", 'Invalid value: "string": spec.size in body must be of type integer: "string"'),
        (
            {"size": 1, "amount": True},
            "spec.amount",
            'Invalid value: "boolean": spec.amount in body must be of type integer,string: "boolean"',
        ),
        ({"size": 1, "mode": "odd"}, "spec.mode", 'Unsupported value: "odd": supported values: "fast", "slow"'),
        ({"size": 1, "window": "12345s"}, "spec.window", "Too long: may not be more than 5 bytes"),
        (
            {"size": 1, "tags": [{"key": "a"}, {"key": "b"}, {"key": "c"}]},
            "spec.tags",
            "Too many: 3: must have at most 2 items",
        ),
        ({"size": 1, "tags": [{"value": "v"}]}, "spec.tags[0].key", "Required value"),
        (
            {"size": 1, "tags": [None]},
            "spec.tags[0]",
            'Invalid value: "null": spec.tags[0] in body must be of type object: "null"',
        ),
        (
            {"size": 1, "when": "noon"},
            "spec.when",
            'Invalid value: "noon": spec.when in body must be of type date-time: "noon"',
        ),
    ],
)
def test_a_wrong_shape_also_says_that_rules_were_not_tried(spec: dict[str, Any], field: str, message: str) -> None:
    """CEL could trip over such a value, so the user is told that more may follow."""
    first, *_, last = refusal(spec)
    assert first == (field, message)
    assert last[0] == "<nil>" and "some validation rules were not checked" in last[1]


def test_keyed_lists_hold_no_key_twice() -> None:
    """Their items could not be told apart."""
    spec = {"size": 1, "tags": [{"key": "a"}, {"key": "a"}]}
    assert refusal(spec) == [("spec.tags[1]", 'Duplicate value: {"key":"a"}')]


def test_rules_refuse_at_their_own_place() -> None:
    """Paths through lists, maps and fieldPath."""
    assert refusal({"size": 1, "tags": [{"key": "a"}, {"key": "reserved"}]}) == [
        ("spec.tags[1].key", "Invalid value: key is reserved")
    ]
    assert refusal({"size": 1, "labels": {"a": ""}}) == [("spec.labels[a]", 'Invalid value: "": may not be empty')]
    assert refusal({"size": 7, "mode": "fast"}) == [("spec", "Invalid value: far too small")]


def test_transition_rules_compare_with_what_is_stored() -> None:
    """Rules with oldSelf pass on create and count on update."""
    world = widgets()
    world.create("widgets", "w", spec={"size": 3})
    world.patch("widgets", "w", {"spec": {"size": 4}})
    with pytest.raises(Invalid, match=r'Widget\.example\.com "w" is invalid: spec: Invalid value: size only grows'):
        world.patch("widgets", "w", {"spec": {"size": 2}})
    assert world.get("widgets", "w")["spec"]["size"] == 4


def test_what_was_stored_before_a_rule_came_may_stay() -> None:
    """Ratcheting: a stricter definition does not lock old objects against other changes."""
    world = widgets()
    world.create("widgets", "w", spec={"size": 9, "labels": {"a": "b"}})
    stricter = {**SPEC_SCHEMA["properties"], "size": {"type": "integer", "maximum": 5}}
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties"
    from pykarpenter.kube.contract import PatchType

    world.patch(
        "customresourcedefinitions",
        "widgets.example.com",
        [{"op": "replace", "path": path, "value": stricter}],
        patch_type=PatchType.JSON,
    )
    world.patch("widgets", "w", {"spec": {"labels": {"a": "c"}}})
    with pytest.raises(Invalid, match=r"spec\.size in body should be less than or equal to 5"):
        world.patch("widgets", "w", {"spec": {"size": 8}})


def test_status_is_written_through_its_own_door() -> None:
    """Status isolation holds for custom kinds, and their metadata is left alone too."""
    world = widgets()
    world.create("widgets", "w", spec={"size": 1}, status={"size": 5})
    assert "status" not in world.get("widgets", "w")
    world.patch(
        "widgets",
        "w",
        {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 2}, "status": {"size": 1, "junk": 1}},
        subresource="status",
    )
    found = world.get("widgets", "w")
    assert found["status"] == {"size": 1} and found["spec"]["size"] == 1
    assert "labels" not in found["metadata"] and found["metadata"]["generation"] == 1


def test_strict_writers_are_told_about_unknown_fields() -> None:
    """kubectl asks for Strict; programs may ask for warnings."""
    world = widgets()
    kind = {"apiVersion": "example.com/v1", "kind": "Widget"}
    body = {**kind, "metadata": {"name": "w"}, "spec": {"size": 1, "colour": "red"}}
    with pytest.raises(BadRequest, match=r'strict decoding error: unknown field "spec\.colour"'):
        world.store.create(world.kind("widgets"), body, "default", WriteOptions(field_validation="Strict"))
    warnings: list[str] = []
    options = WriteOptions(field_validation="Warn", warnings=warnings)
    world.store.create(world.kind("widgets"), body, "default", options)
    assert warnings == ['unknown field "spec.colour"']


def test_a_deleted_definition_takes_its_objects_along() -> None:
    """Objects of a kind that nobody serves could never be reached again."""
    world = widgets()
    world.create("widgets", "w", spec={"size": 1}, metadata={"finalizers": ["example.com/hold"]})
    watch = world.watch("widgets", resource_version=str(world.store.rv))
    world.delete("customresourcedefinitions", "widgets.example.com")
    assert seen(watch) == [("MODIFIED", "w")]
    world.patch("widgets", "w", {"metadata": {"finalizers": None}})
    assert seen(watch) == [("DELETED", "w")]
    assert world.names("customresourcedefinitions") == []
    with pytest.raises(NotFound):
        world.store.resource("example.com", "widgets")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": {"name": "wrong.example.com"}}, "metadata.name"),
        ({"spec": {**CRD["spec"], "group": ""}}, "spec.group"),
        ({"spec": {**CRD["spec"], "versions": []}}, "spec.versions"),
    ],
)
def test_a_broken_definition_is_refused(change: dict[str, Any], field: str) -> None:
    """Bad input gets the path of the field, not an exception."""
    world = World()
    with pytest.raises(Invalid) as refused:
        world.store.create(world.kind("customresourcedefinitions"), {**CRD, **change})
    assert field in [cause["field"] for cause in refused.value.details["causes"]]


def test_our_own_definitions_are_served() -> None:
    """Every rule in our manifests compiles and a plain NodePool passes them."""
    world = World()
    for manifest in crds():
        world.store.create(world.kind("customresourcedefinitions"), manifest)
    template = {
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
        }
    }
    made = world.create("nodepools", "general", spec={"template": template})
    assert made.obj["spec"]["disruption"]["budgets"] == [{"nodes": "10%"}]
    pool = made.obj["spec"]["template"]["spec"]
    assert pool["expireAfter"] == "720h"
    broken = {**template["spec"], "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": []}]}
    with pytest.raises(Invalid) as refused:
        world.create("nodepools", "other", spec={"template": {"spec": broken}})
    assert [cause["field"] for cause in refused.value.details["causes"]] == ["spec.template.spec.requirements[0]"]


def test_replicas_behind_a_scale_fit_into_a_scale() -> None:
    """Whatever the schema allows: a Scale counts in 32 bits, and the real server writes its path with a dot."""
    world = World()
    for manifest in crds():
        world.store.create(world.kind("customresourcedefinitions"), manifest)
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    template = {"spec": {"nodeClassRef": reference, "requirements": []}}
    world.create("nodepools", "most", spec={"template": template, "replicas": 2**31 - 1})
    with pytest.raises(Invalid) as refused:
        world.create("nodepools", "more", spec={"template": template, "replicas": 2**31})
    assert [(cause["field"], cause["message"]) for cause in refused.value.details["causes"]] == [
        (".spec.replicas", "Invalid value: 2147483648: should be less than or equal to 2147483647")
    ]


def test_of_length_and_pattern_only_the_first_is_told() -> None:
    """As an API server does it."""
    schema = {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-z]+$"}
    assert [len(list(violations(schema, text, None, "spec.x"))) for text in ("", "AAAA", "AA", "aa")] == [1, 1, 1, 0]
