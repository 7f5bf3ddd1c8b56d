"""The controller as a process of its own on a cluster of 10,000 nodes and 100,000 pods, served over TLS by another.

`python -m benchmarks.scale --nodes 1000 --pods 10000` measures a smaller one; `--consolidate-after 0s` lets the
controller consolidate while it is measured. Time to synced counts from the start of the process until `/readyz` is ok
and `karpenter_cluster_state_synced` is 1. Memory is the highest that the process ever held. Scrapes follow one another
without a pause, and lag is what the process itself measures meanwhile.

Other work on the machine is left out as far as it can be told: from times the time is taken off for which the
controller's loop was ready and waited for a processor, and a lag counts up to the processor time that the controller
used. The notes have the wall clock.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import Row
from benchmarks.scale_controller import Sample

NODES, PODS = 10_000, 100_000
SCRAPES = 5
# Long enough for a few hundred measurements of the lag.
SCRAPING_S = 30.0
PATIENCE_S = 400.0
# Gauges follow the cluster by a few seconds; the scrapes that count have all of it.
SETTLE_S = 15.0
SYNCED = b"karpenter_cluster_state_synced 1.0"


@dataclass(frozen=True, slots=True)
class Scrape:
    """Times without the controller's waits for a processor, and the wall clock."""

    first_byte_s: float
    whole_s: float
    wall_s: float
    text: bytes


@contextmanager
def served_cluster(nodes: int, pods: int, consolidate_after: str) -> Iterator[Path]:
    """The kubeconfig of a big cluster that lives as long as the block."""
    with tempfile.TemporaryDirectory(prefix="pykarpenter-bench-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        command = [sys.executable, "-m", "benchmarks.scale_server", str(kubeconfig)]
        command += ["--nodes", str(nodes), "--pods", str(pods), "--consolidate-after", consolidate_after]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            if server.stdout.readline().strip() != b"serving":
                raise RuntimeError("the served cluster did not start")
            yield kubeconfig
        finally:
            _end(server)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Controller:
    """`pykarpenter run` against the served cluster, with ports of its own."""

    def __init__(self, kubeconfig: Path, *flags: str) -> None:
        self._ports = _free_port(), _free_port()
        self._log = kubeconfig.with_name(f"controller-{self._ports[0]}.log")
        self._lags = kubeconfig.with_name(f"lag-{self._ports[0]}.json")
        command = [sys.executable, "-m", "benchmarks.scale_controller", "run", "--provider", "kwok"]
        command += ["--kubeconfig", str(kubeconfig), "--metrics-port", str(self._ports[0])]
        # Playing 10,000 kubelets is another program's work: `pykarpenter kubelets`, or a KWOK controller.
        command += ["--health-probe-port", str(self._ports[1]), "--kwok-kubelets=external", *flags]
        self.started = time.perf_counter()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "LAG_FILE": str(self._lags)}
            )

    def wait_synced(self) -> float:
        """Seconds of wall clock from the start to synced."""
        deadline = self.started + PATIENCE_S
        while time.perf_counter() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the controller ended: {self._log.read_text()[-500:]}")
            if self._is_ready() and SYNCED in self.scrape(until=SYNCED).text:
                return time.perf_counter() - self.started
            time.sleep(0.2)
        raise RuntimeError(f"not synced after {PATIENCE_S} s: {self._log.read_text()[-500:]}")

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[1], timeout=30.0)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def scrape(self, until: bytes = b"") -> Scrape:
        """All of `/metrics`, or only as much as it takes to find `until`."""
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[0], timeout=120.0)
        waited, started = self.waited_s(), time.perf_counter()
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            pieces = [answer.read(1)]
            first = time.perf_counter() - started - (self.waited_s() - waited)
            while piece := answer.read1(1 << 20):
                pieces.append(piece)
                if until and until in b"".join(pieces[-2:]):
                    break
            wall = time.perf_counter() - started
            return Scrape(max(0.0, first), max(0.0, wall - (self.waited_s() - waited)), wall, b"".join(pieces))
        finally:
            connection.close()

    def waited_s(self) -> float:
        """How long the loop's thread was ready to run and had no processor, since the start."""
        try:
            return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0

    def peak_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(kib) / 1024

    def cpu_s(self) -> float:
        """Processor time so far, user and system: what the wall clock shows beside it is a matter of the machine."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> list[Sample]:
        """Ends the controller; returns how late its loop was."""
        _end(self.process)
        samples: list[Sample] = json.loads(self._lags.read_text()) if self._lags.exists() else []
        return samples


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def quantile(values: list[float], wanted: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(wanted * len(ordered)))] if ordered else float("nan")


def observed(kubeconfig: Path) -> list[Row]:
    """With every gauge on."""
    controller = Controller(kubeconfig)
    lags: list[Sample] = []
    try:
        wall, spent, waited = controller.wait_synced(), controller.cpu_s(), controller.waited_s()
        early = controller.scrape()
        time.sleep(SETTLE_S)
        begin, before = time.time(), controller.cpu_s()
        scrapes = [controller.scrape()]
        while len(scrapes) < SCRAPES or time.time() - begin < SCRAPING_S:
            scrapes.append(controller.scrape())
        end, scraping = time.time(), (controller.cpu_s() - before) / len(scrapes)
        peak = controller.peak_mib()
    finally:
        lags = controller.stop()
    during = [(lag, min(lag, used)) for at, lag, used in lags if begin <= at <= end]
    walls = quantile([lag for lag, _ in during], 0.99)
    lines, size = scrapes[-1].text.count(b"\n"), len(scrapes[-1].text) / 2**20
    longest = max(scrape.wall_s for scrape in scrapes)
    return [
        Row("start to synced", wall - waited, "s", 60.0, note=f"wall {wall:.1f} s, cpu {spent:.1f} s"),
        Row("highest resident memory", peak, "MiB", 1536.0, cpu_bound=False),
        Row("scrape, first byte", max(s.first_byte_s for s in (early, *scrapes)), "s", 1.0),
        Row(
            "scrape, whole",
            max(s.whole_s for s in scrapes),
            "s",
            15.0,
            note=f"{lines:,} lines, {size:.0f} MiB, wall {longest:.1f} s, cpu {scraping:.1f} s",
        ),
        Row("scrape right after sync", early.whole_s, "s", 15.0, note=f"wall {early.wall_s:.1f} s"),
        Row(
            "loop lag p99 during scrapes",
            quantile([own for _, own in during], 0.99) * 1000,
            "ms",
            100.0,
            note=f"{len(during)} measurements, wall {walls * 1000:.0f} ms",
        ),
        Row("loop lag at worst", max(own for _, own in during) * 1000, "ms"),
    ]


def unobserved(kubeconfig: Path) -> list[Row]:
    """With `disable-cluster-state-observability`."""
    controller = Controller(kubeconfig, "--disable-cluster-state-observability")
    try:
        wall, spent, waited = controller.wait_synced(), controller.cpu_s(), controller.waited_s()
        time.sleep(2.0)
        scrapes = [controller.scrape() for _ in range(SCRAPES)]
        peak = controller.peak_mib()
    finally:
        controller.stop()
    longest = max(scrape.wall_s for scrape in scrapes)
    return [
        Row(
            "scrape, whole, observability off", max(s.whole_s for s in scrapes), "s", 1.0, note=f"wall {longest:.2f} s"
        ),
        Row(
            "start to synced, observability off",
            wall - waited,
            "s",
            60.0,
            note=f"wall {wall:.1f} s, cpu {spent:.1f} s",
        ),
        Row("highest memory, observability off", peak, "MiB", 1536.0, cpu_bound=False),
    ]


def run(nodes: int = NODES, pods: int = PODS, consolidate_after: str = "Never") -> list[Row]:
    with served_cluster(nodes, pods, consolidate_after) as kubeconfig:
        return [*observed(kubeconfig), *unobserved(kubeconfig)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--consolidate-after", default="Never")
    options = parser.parse_args()
    for row in run(options.nodes, options.pods, options.consolidate_after):
        verdict = {True: "PASS", False: "MISS", None: "-"}[row.passes(1.0)]
        bound = "" if row.target is None else f"≤ {row.target:g}"
        print(f"{row.name:40} {row.value:>10.2f} {bound:>8} {row.unit:5} {verdict}  {row.note}")


if __name__ == "__main__":
    main()
