"""A memo that follows what is in use: what nobody asks for any more is let go, however long the program runs.

Answers are kept in two generations, and the owner says when a new one begins: after so many decisions, for example,
that whatever is in use was asked for. What was not asked for since the generation before is dropped then. There is no
clock and no chance in it, so equal histories keep equal answers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Answers by question; `None` is no answer. A generation with `most` answers ends by itself."""

    __slots__ = ("_former", "_inherited", "_most", "_present")

    def __init__(self, most: int) -> None:
        self._most = most
        self._present: dict[K, V] = {}
        self._former: dict[K, V] = {}
        self._inherited = 0

    def __len__(self) -> int:
        return len(self._present) + len(self._former)

    def values(self) -> Iterator[V]:
        """All answers that are kept."""
        return chain(self._present.values(), self._former.values())

    def get(self, key: K) -> V | None:
        """The answer, if it was given or asked for in this generation or the one before."""
        found = self._present.get(key)
        if found is None:
            found = self._former.pop(key, None)
            if found is not None:
                self._present[key] = found
        return found

    def put(self, key: K, answer: V) -> V:
        """Keep an answer; replies with it."""
        if len(self._present) >= self._most:
            self.turn()
        self._present[key] = answer
        return answer

    def turn(self) -> int:
        """Begin a generation: what was not asked for in the last one is gone. Answers how much that took over."""
        taken_over = self._inherited - len(self._former)
        self._present, self._former = {}, self._present
        self._inherited = len(self._former)
        return taken_over
