"""What a caller may ask of the store besides the object itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write: `dry_run` checks and answers without storing.

    `field_validation` (Strict, Warn, Ignore) is about unknown fields; what was dropped is added to `warnings`.
    """

    dry_run: bool = False
    field_manager: str = ""
    force: bool = False
    field_validation: str = ""
    warnings: list[str] | None = None


PLAIN_WRITE = WriteOptions()


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """`propagation` is Background, Foreground or Orphan; None leaves it to the object's finalizers."""

    uid: str | None = None
    resource_version: str | None = None
    grace_period_s: int | None = None
    propagation: str | None = None
    dry_run: bool = False


PLAIN_DELETE = DeleteRequest()


@dataclass(frozen=True, slots=True)
class ListRequest:
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    send_initial_events: bool = False
