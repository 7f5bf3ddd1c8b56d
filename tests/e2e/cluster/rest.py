"""Plain JSON requests to an API server, for set-up, clean-up and polling.

Starting kubectl takes a good tenth of a second each time, which adds up in polls. This is not a client to
build on: no watches, no retries, one connection per request.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

MERGE_PATCH = "application/merge-patch+json"


class ApiError(Exception):
    """The API server refused: `code` is the HTTP status, `reason` and `message` are its Status object's."""

    def __init__(self, method: str, path: str, code: int, body: str) -> None:
        self.code = code
        self.reason = ""
        self.message = body
        try:
            status = json.loads(body)
            self.reason, self.message = status.get("reason", ""), status.get("message", body)
        except (ValueError, AttributeError):
            pass
        super().__init__(f"{method} {path}: {code} {self.reason}: {self.message}")


class Rest:
    """Requests as one user. Objects are plain dicts, paths are the API's own (`/api/v1/nodes`)."""

    def __init__(self, host: str, port: int, *, token: str, tls: ssl.SSLContext) -> None:
        self._host, self._port, self._token, self._tls = host, port, token, tls

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> tuple[int, str]:
        """Status code and body, whatever they are; `OSError` when the server cannot be reached."""
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=30)
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        payload = None
        if body is not None:
            payload = json.dumps(body)
            headers["Content-Type"] = content_type
        try:
            connection.request(method, path, body=payload, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def _json(self, method: str, path: str, body: Any = None, **how: str) -> Any:
        code, text = self.request(method, path, body, **how)
        if code >= 400:
            raise ApiError(method, path, code, text)
        return json.loads(text) if text else None

    def get(self, path: str, **query: str) -> Any:
        return self._json("GET", f"{path}?{urlencode(query)}" if query else path)

    def find(self, path: str) -> Any | None:
        """The object, or None when there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Any]:
        items: list[Any] = self.get(path, **query).get("items") or []
        return items

    def create(self, path: str, body: Any) -> Any:
        return self._json("POST", path, body)

    def patch(self, path: str, body: Any, *, content_type: str = MERGE_PATCH) -> Any:
        return self._json("PATCH", path, body, content_type=content_type)

    def delete(self, path: str, *, grace_period_s: int | None = None) -> None:
        """Delete an object or a whole collection; an absent one is fine."""
        options = None if grace_period_s is None else {"gracePeriodSeconds": grace_period_s}
        code, text = self.request("DELETE", path, options)
        if code >= 400 and code != 404:
            raise ApiError("DELETE", path, code, text)

    def resources(self, group_version_path: str) -> Iterator[str]:
        """Plural names of what a group version serves (`/apis/karpenter.sh/v1`), subresources left out."""
        found = self.find(group_version_path)
        for resource in (found or {}).get("resources", []):
            if "/" not in resource["name"]:
                yield resource["name"]


def object_path(collection: str, name: str) -> str:
    return f"{collection}/{quote(name, safe='')}"
