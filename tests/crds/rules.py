"""Every rule that the generated CRDs contain, found by walking their schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FACETS = ("pattern", "enum", "minimum", "maximum", "minLength", "maxLength", "maxItems", "maxProperties")


def rules_of(crd: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(plural, path, facet): `pattern`, `enum`, a bound, `required <field>`, `unique`, or `rule <CEL text>`."""
    plural = crd["spec"]["names"]["plural"]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("spec", "status"):
        if name in schema.get("required", []):
            yield plural, "", f"required {name}"
        yield from _walk(plural, name, schema["properties"][name])


def _walk(plural: str, path: str, schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for facet in FACETS:
        if facet in schema:
            yield plural, path, facet
    for name in schema.get("required", []):
        # A default is filled in before anything is checked.
        if "default" not in schema["properties"][name]:
            yield plural, path, f"required {name}"
    for item in schema.get("x-kubernetes-validations", []):
        yield plural, path, f"rule {item['rule']}"
    if schema.get("x-kubernetes-list-type") in ("set", "map"):
        yield plural, path, "unique"
    for name, child in schema.get("properties", {}).items():
        yield from _walk(plural, f"{path}.{name}", child)
    if "items" in schema:
        yield from _walk(plural, f"{path}[]", schema["items"])
    if "additionalProperties" in schema:
        yield from _walk(plural, f"{path}{{}}", schema["additionalProperties"])
