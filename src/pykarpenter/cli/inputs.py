"""Reading manifests for commands: files, folders and standard input, in a fixed order."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pykarpenter.api.manifests import Document, ManifestError, read_documents

SUFFIXES = (".yaml", ".yml", ".json")
_GZIP = b"\x1f\x8b"


def documents(sources: Iterable[str]) -> Iterator[Document]:
    """The objects of all sources; raises ManifestError for what cannot be read and for a source that holds nothing."""
    for source in sources:
        blank = True
        for name, text in _texts(source):
            blank = blank and is_blank(text)
            yield from read_documents(text, name)
        if blank:
            name = "stdin" if source == "-" else source
            raise ManifestError(f"{name}: is empty; give at least one object with apiVersion and kind")


def _texts(source: str) -> Iterator[tuple[str, str]]:
    if source == "-":
        yield "stdin", sys.stdin.read()
        return
    path = Path(source)
    files = [path]
    if path.is_dir():
        files = sorted(item for item in path.rglob("*") if item.suffix in SUFFIXES and item.is_file())
        if not files:
            raise ManifestError(f"{source}: no .yaml, .yml or .json file in this folder")
    for file in files:
        yield str(file), _text(file)


def is_blank(text: str) -> bool:
    """Nothing but comments and separators, which is most likely the output of a command that failed."""
    return all(not line.strip() or line.lstrip().startswith(("#", "---")) for line in text.splitlines())


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == _GZIP else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ManifestError(f"{path}: cannot be read: {reason}") from error
