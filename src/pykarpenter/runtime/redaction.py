"""What must never reach a log, an event or a dump: secrets by the name of their field, and by their look.

User data is shown as a hash, so that two nodes can be compared without showing what is in it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

HIDDEN = "[redacted]"

_SECRET_KEY = re.compile(
    r"(password|passwd|secret(?!name|_name|-name)|token(?!_?expir)|authorization|credential|api[-_]?key|access[-_]?key"
    r"|private[-_]?key|client[-_]?key|key[-_]?data|cookie|bearer)",
    re.IGNORECASE,
)
_USER_DATA_KEY = re.compile(r"user[-_]?data", re.IGNORECASE)
# Tokens by look: bearer headers, JSON web tokens, AWS key ids, PEM private keys, passwords in addresses.
_SECRET_TEXT = re.compile(
    r"(?P<lead>\b[Bb]earer\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?P<scheme>\b[a-z][a-z0-9+.-]*://[^/\s:@]*:)[^/\s@]+(?=@)",
    re.DOTALL,
)


def redact(key: str, value: Any) -> Any:
    """The value as it may be written down under `key`; containers are walked."""
    if _USER_DATA_KEY.search(key) and isinstance(value, str | bytes):
        return f"sha256:{hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()[:16]}"
    if isinstance(value, bool | int | float) or value is None:
        return value
    if _SECRET_KEY.search(key):
        return HIDDEN
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {str(name): redact(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [redact(key, item) for item in items]
    return redact_text(str(value))


def redact_text(text: str) -> str:
    """The text without anything that looks like a secret."""
    return _SECRET_TEXT.sub(lambda found: (found["lead"] or found["scheme"] or "") + HIDDEN, text)
