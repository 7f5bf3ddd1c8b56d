"""Keeps the garbage collector from walking a heap full of long-lived objects again and again.

While the first lists fill the caches the collector is off; afterwards one collection runs and everything alive is
frozen out of later ones (a full collection with 100,000 pods costs half a second, after freezing nothing).
"""

from __future__ import annotations

import gc
from types import TracebackType


class GarbagePause:
    """A pause that several loaders share: it begins with the first to enter and ends with the last to leave."""

    def __init__(self) -> None:
        self._inside = 0
        self._was_enabled = True

    def __enter__(self) -> GarbagePause:
        if self._inside == 0:
            self._was_enabled = gc.isenabled()
            gc.disable()
        self._inside += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside -= 1
        if self._inside == 0:
            gc.collect()
            gc.freeze()
            if self._was_enabled:
                gc.enable()
