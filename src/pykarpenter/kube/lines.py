"""Cuts a byte stream into lines whatever the chunks are: a watch line may be megabytes long or share a chunk."""

from __future__ import annotations


class LineSplitter:
    """Feed chunks, get whole lines without their newline; the unfinished rest waits for the next chunk."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        # Kept as parts: joining a long line once is linear, appending to one bytes object is not.
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        if b"\n" not in chunk:
            if chunk:
                self._parts.append(chunk)
            return []
        lines = chunk.split(b"\n")
        if self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts = []
        rest = lines.pop()
        if rest:
            self._parts.append(rest)
        return [line for line in lines if line]
