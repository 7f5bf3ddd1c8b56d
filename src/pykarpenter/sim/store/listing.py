"""Lists in pages that show one moment: a continue token names the version and the last key it handed out."""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_right
from dataclasses import dataclass

from pykarpenter.kube.errors import Expired, ServerFault
from pykarpenter.sim.store.entries import Entry
from pykarpenter.sim.store.refusals import bad_request, expired_continue
from pykarpenter.sim.store.requests import ListRequest
from pykarpenter.sim.store.selectors import Filter
from pykarpenter.sim.store.tables import Table, key_of


@dataclass(frozen=True, slots=True)
class Listing:
    """One page; `remaining` is what is left after it, when it is known."""

    entries: list[Entry]
    rv: int
    continue_token: str = ""
    remaining: int | None = None


def parse_version(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise bad_request(f'Invalid value: "{text}": resourceVersion must be a non-negative integer')
    return number


def _token(rv: int, start: str) -> str:
    body = json.dumps({"v": "meta.k8s.io/v1", "rv": rv, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        body = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(body["rv"]), str(body["start"])
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise bad_request("continue key is not valid: list again without it") from error


def check_not_future(rv: int, current: int) -> None:
    if rv > current:
        raise ServerFault(f"Too large resource version: {rv}, current: {current}", code=504, reason="Timeout")


def list_page(table: Table, wanted: Filter, request: ListRequest, current_rv: int) -> Listing:
    """One page of a list; raises Expired for a token or exact version that compaction passed."""
    if request.continue_token:
        return _next_page(table, wanted, request, current_rv)
    if request.resource_version_match == "Exact":
        rv = parse_version(request.resource_version)
        check_not_future(rv, current_rv)
        return _cut(table.select_at(wanted, rv), rv, request.limit)
    if request.resource_version:
        check_not_future(parse_version(request.resource_version), current_rv)
    return _cut(table.select(wanted), current_rv, request.limit)


def _next_page(table: Table, wanted: Filter, request: ListRequest, current_rv: int) -> Listing:
    rv, start = _read_token(request.continue_token)
    if rv == 0:
        # The token of a 410 answer: go on from the same key, on what is there now.
        rv, entries = current_rv, table.select(wanted)
    else:
        try:
            entries = table.select_at(wanted, rv)
        except Expired as error:
            raise expired_continue(_token(0, start)) from error
    first = bisect_right(entries, start, key=lambda entry: key_of(entry.obj))
    return _cut(entries[first:], rv, request.limit)


def _cut(entries: list[Entry], rv: int, limit: int) -> Listing:
    if limit <= 0 or len(entries) <= limit:
        return Listing(entries, rv)
    page = entries[:limit]
    return Listing(page, rv, _token(rv, key_of(page[-1].obj)), len(entries) - limit)
