"""Ten scenarios end alike on the embedded and on a real cluster; the run writes the table in `docs/`."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

from pykarpenter.kube.client import HttpApi
from pykarpenter.kube.config import from_kubeconfig
from pykarpenter.runtime.clock import SystemClock
from tests.conformance.table import Row, table
from tests.scenarios.playing import Findings, play_all, play_embedded

from .cluster import Cluster, ProgramRunner
from .cluster.sweep import TEST_LABEL

DOCUMENT = Path(__file__).parents[2] / "docs" / "embedded-and-real.md"
HEAD = """# Ten scenarios, two clusters

Most of what is tested runs on the embedded cluster. These scenarios (`tests/scenarios`, provider `kwok`) are played on
it and on a real Kubernetes with its own scheduler and controllers: which pods run, how many nodes there are, which
conditions hold and which reasons the events of scheduler and program give. The last `make e2e` found this with
Kubernetes 1.36; that run writes this file.

| Scenario | Embedded and real agree |
|---|---|
"""


def play_real(cluster: Cluster) -> Findings:
    async def main() -> Findings:
        clock = SystemClock()
        async with HttpApi(from_kubeconfig([cluster.admin_kubeconfig], clock), clock=clock) as api:
            return await play_all(api, namespace_labels={TEST_LABEL: ""}, suffix=f"-{secrets.token_hex(3)}")

    return asyncio.run(main())


@pytest.mark.timeout(300)
def test_ten_scenarios_end_alike_on_both_clusters(cluster: Cluster, crds: None, programs: ProgramRunner) -> None:
    """A simulator that differs from Kubernetes would prove the wrong thing."""
    # The embedded process shows no gauges and so no events of conditions; the real one is asked for the same.
    programs.start("run", "--provider", "kwok", "--disable-cluster-state-observability", "true").wait_ready()
    real, embedded = play_real(cluster), play_embedded()
    rows = {name: [Row(*pair) for pair in zip(embedded[name], real[name], strict=True)] for name in real}
    DOCUMENT.write_text(table(rows, HEAD))
    assert [(name, row) for name, found in rows.items() for row in found if not row.same] == []
    assert [(name, row.real) for name, found in rows.items() for row in found if not row.as_expected] == []
