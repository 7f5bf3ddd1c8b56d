"""Errors and deletions as the Status objects that clients read."""

from __future__ import annotations

from typing import Any

from pykarpenter.kube.errors import ApiError

Json = dict[str, Any]


def failure(error: ApiError) -> Json:
    status: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.code,
    }
    details = dict(error.details)
    token = details.pop("continue", None)
    if token is not None:
        # The way on after an expired page travels in the list metadata.
        status["metadata"] = {"continue": token}
    if error.retry_after_s:
        details.setdefault("retryAfterSeconds", int(error.retry_after_s))
    # Also when empty: kubectl looks into it without asking whether it is there.
    status["details"] = details
    return status


def success(**details: Any) -> Json:
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    return status
