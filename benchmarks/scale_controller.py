"""`pykarpenter` as it is, with every measurement of the loop's lag written down when it ends: for `benchmarks.scale`.

Beside the lag stands the processor time that the process used in the same interval. On a machine with other work a loop
is late because it does not get a processor; what the program itself did to it is at most what it used.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from pathlib import Path

from pykarpenter.cli.main import main
from pykarpenter.runtime.lag import LoopLag

# When (wall time), how late, and processor time since the measurement before; in seconds.
Sample = tuple[float, float, float]


def record(path: Path) -> None:
    samples: list[Sample] = []
    note, last = LoopLag.note, time.process_time()

    def noting(self: LoopLag, lag_s: float) -> None:
        nonlocal last
        now = time.process_time()
        samples.append((time.time(), lag_s, now - last))
        last = now
        note(self, lag_s)

    LoopLag.note = noting  # type: ignore[method-assign]
    atexit.register(lambda: path.write_text(json.dumps(samples)))


if __name__ == "__main__":
    record(Path(os.environ["LAG_FILE"]))
    sys.argv[0] = "pykarpenter"
    main()
