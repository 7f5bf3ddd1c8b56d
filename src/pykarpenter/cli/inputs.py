"""Reading manifests for commands: files, folders and standard input, in a fixed order."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pykarpenter.api.manifests import Document, ManifestError, read_documents

SUFFIXES = (".yaml", ".yml", ".json")


def documents(sources: Iterable[str]) -> Iterator[Document]:
    """The objects of all sources; raises ManifestError for what cannot be read."""
    for source in sources:
        if source == "-":
            yield from read_documents(sys.stdin.read(), "stdin")
            continue
        path = Path(source)
        if path.is_dir():
            files = sorted(item for item in path.rglob("*") if item.suffix in SUFFIXES and item.is_file())
            if not files:
                raise ManifestError(f"{source}: no .yaml, .yml or .json file in this folder")
        else:
            files = [path]
        for file in files:
            yield from read_documents(_text(file), str(file))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ManifestError(f"{path}: cannot be read: {reason}") from error
