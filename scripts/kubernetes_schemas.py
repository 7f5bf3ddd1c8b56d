"""Writes the schemas of the built-in kinds from a Kubernetes release's OpenAPI document.

    python scripts/kubernetes_schemas.py api/openapi-spec/swagger.json

Only what the embedded cluster's kinds refer to is kept. The output is the same for the same input.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pykarpenter.sim.schema.kubernetes import DATA_FILE
from pykarpenter.sim.store.resources import BUILTIN

# What subresources and errors speak, besides the kinds themselves.
EXTRA = {("autoscaling", "v1", "Scale"), ("policy", "v1", "Eviction"), ("", "v1", "Binding"), ("", "v1", "Status")}


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.rpartition("/")[2]
            else:
                yield from references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from references(item)


def reachable(definitions: dict[str, Any], wanted: set[tuple[str, str, str]]) -> dict[str, Any]:
    """The definitions of the wanted kinds and everything they refer to."""
    open_names = []
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            if (kind["group"], kind["version"], kind["kind"]) in wanted:
                open_names.append(name)
    kept: dict[str, Any] = {}
    while open_names:
        name = open_names.pop()
        if name not in kept:
            kept[name] = definitions[name]
            open_names.extend(references(definitions[name]))
    # The delete options and such list every group version there is; here they are options like any other.
    for definition in kept.values():
        kinds = definition.get("x-kubernetes-group-version-kind", ())
        if len(kinds) > 1:
            definition["x-kubernetes-group-version-kind"] = [kind for kind in kinds if kind["group"] == ""]
    return kept


def main() -> None:
    document = json.loads(Path(sys.argv[1]).read_text())
    wanted = {(resource.group, resource.version, resource.kind) for resource in BUILTIN} | EXTRA
    kept = reachable(document["definitions"], wanted)
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    Path(str(DATA_FILE)).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{DATA_FILE}: {len(kept)} definitions")


if __name__ == "__main__":
    main()
