"""How many keys a controller works on at once, by the processor it was given (`CPU_REQUESTS`).

A worker is a task that mostly waits for the API server, so many fit on one core; the client's rate limit paces them.
"""

from __future__ import annotations

_FEWEST_CORES, _MOST_CORES = 1, 60


def workers(fewest: int, most: int, millicores: int) -> int:
    """Linear from `fewest` at one core to `most` at sixty, and flat beyond."""
    cores = min(max(millicores / 1000, _FEWEST_CORES), _MOST_CORES)
    return fewest + int((most - fewest) * (cores - _FEWEST_CORES) / (_MOST_CORES - _FEWEST_CORES))
