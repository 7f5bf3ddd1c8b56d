"""`python -m tests.e2e.cluster build` makes the programs; `up` keeps one cluster running until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from .binaries import ensure_binaries
from .controlplane import Cluster


def main(arguments: list[str]) -> int:
    if arguments not in (["build"], ["up"]):
        print(__doc__, file=sys.stderr)
        return 1
    binaries = ensure_binaries()
    if arguments == ["build"]:
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="pykarpenter-cluster-") as folder:
        try:
            with Cluster(Path(folder), binaries) as cluster:
                print(f"export KUBECONFIG={cluster.admin_kubeconfig}", flush=True)
                signal.pause()
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
