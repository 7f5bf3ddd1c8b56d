"""Writes the field numbers of the built-in kinds from the generated.proto files of a Kubernetes release.

    python scripts/kubernetes_wire.py <k8s.io/api folder> <k8s.io/apimachinery folder>

kubectl sends some objects as protobuf (`kubectl create deployment`); with this table the served cluster reads them.
Run it after scripts/kubernetes_schemas.py, whose definitions it follows.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

from pykarpenter.sim.schema.kubernetes import definitions
from pykarpenter.sim.server.protobuf import DATA_FILE, SPECIAL

_FIELD = re.compile(
    r"^\s*(?:(?P<label>optional|repeated)\s+(?P<type>\S+)|map<string,\s*(?P<value>\S+)>)\s+(?P<name>\w+)\s*=\s*(?P<number>\d+);"
)
_SCALARS = {"string", "bytes", "bool", "int32", "int64", "double", "float", "uint32", "uint64"}
_ROOTS = {"io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"}


def _open_api_name(proto_name: str) -> str:
    return proto_name.lstrip(".").replace("k8s.io.", "io.k8s.", 1)


def read_messages(path: Path) -> dict[str, dict[str, list[str]]]:
    """Message name -> field number -> name, type, and how it repeats."""
    text = path.read_text()
    package = _open_api_name(re.search(r"^package (\S+);", text, re.MULTILINE)[1])  # type: ignore[index]
    messages: dict[str, dict[str, list[str]]] = {}
    current: dict[str, list[str]] = {}
    for line in text.splitlines():
        if opened := re.match(r"^message (\w+) \{", line):
            current = messages.setdefault(f"{package}.{opened[1]}", {})
        elif found := _FIELD.match(line):
            kind = found["type"] or found["value"]
            if kind not in _SCALARS:
                kind = _open_api_name(kind) if "." in kind else f"{package}.{kind}"
            how = "map" if found["value"] else {"repeated": "list"}.get(found["label"], "")
            current[found["number"]] = [found["name"], kind, how]
    return messages


def mark_inline(messages: dict[str, dict[str, list[str]]]) -> None:
    """A member that JSON does not know by its name is spread into its parent there."""
    for name, fields in messages.items():
        properties: Any = definitions().get(name, {}).get("properties")
        if properties is None:
            continue
        for field in fields.values():
            if field[0] not in properties and field[1] in messages and not field[2]:
                field[2] = "inline"


def reachable(messages: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
    waiting = [name for name in definitions() if name in messages] + sorted(_ROOTS)
    kept: dict[str, dict[str, list[str]]] = {}
    while waiting:
        name = waiting.pop()
        if name in kept or name in SPECIAL or name not in messages:
            continue
        kept[name] = messages[name]
        waiting.extend(field[1] for field in messages[name].values())
    return kept


def main() -> None:
    messages: dict[str, dict[str, list[str]]] = {}
    for folder in sys.argv[1:]:
        for path in sorted(Path(folder).rglob("generated.proto")):
            messages |= read_messages(path)
    mark_inline(messages)
    kept = reachable(messages)
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    Path(str(DATA_FILE)).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{DATA_FILE}: {len(kept)} messages")


if __name__ == "__main__":
    main()
