"""What an API server can answer other than success, as typed errors with the server's own words."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """An error answer of the API server: HTTP code, Kubernetes reason, message and details."""

    code = 500
    reason = "InternalError"

    def __init__(self, message: str, *, code: int | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if reason is not None:
            self.reason = reason
        self.details: dict[str, Any] = {}
        self.retry_after_s: float | None = None


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class Conflict(ApiError):
    """A stale resourceVersion or UID precondition."""

    code, reason = 409, "Conflict"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"


class Expired(ApiError):
    """The resourceVersion or continue token is too old: list again."""

    code, reason = 410, "Expired"


class Invalid(ApiError):
    code, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    """Throttled, or an eviction that a PodDisruptionBudget refuses."""

    code, reason = 429, "TooManyRequests"


class ServerFault(ApiError):
    """5xx answers, broken connections and time-outs: nothing is known about the outcome."""

    code, reason = 500, "InternalError"


class Fenced(ApiError):
    """Never sent: this process does not hold the lease, or not for long enough to see the answer (S9)."""

    code, reason = 403, "LeaseNotHeld"


_BY_REASON: dict[str, type[ApiError]] = {
    cls.reason: cls
    for cls in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        Conflict,
        AlreadyExists,
        Expired,
        Invalid,
        TooManyRequests,
    )
}
_BY_REASON["Gone"] = Expired
_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def error_from_status(code: int, status: dict[str, Any]) -> ApiError:
    """The typed error of a `kind: Status` body; anything unknown is a ServerFault."""
    reason = str(status.get("reason") or "")
    cls = _BY_REASON.get(reason) or _BY_CODE.get(code) or ServerFault
    error = cls(str(status.get("message") or f"HTTP {code}"), code=code, reason=reason or None)
    error.details = status.get("details") or {}
    retry = error.details.get("retryAfterSeconds")
    error.retry_after_s = float(retry) if retry else None
    return error
