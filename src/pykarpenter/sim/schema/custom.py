"""What a CustomResourceDefinition says about its kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CustomSchema:
    singular: str
    list_kind: str
    selectable_fields: tuple[str, ...] = ()
