"""UIDs and generated names, drawn from one seed so that a run can be repeated."""

from __future__ import annotations

import random

# Kubernetes' alphabet for generated names: no vowels, no look-alikes.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_MAX_NAME = 63


class Identity:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uid(self) -> str:
        """A version 4 UUID."""
        text = f"{self._random.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def generated_name(self, prefix: str) -> str:
        suffix = "".join(self._random.choices(_ALPHABET, k=_SUFFIX_LENGTH))
        return prefix[: _MAX_NAME - _SUFFIX_LENGTH] + suffix
