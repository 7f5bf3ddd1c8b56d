"""The embedded cluster and a real API server give the same answers; the run writes the table in `docs/`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykarpenter.kube.client import HttpApi
from pykarpenter.kube.config import from_kubeconfig
from pykarpenter.runtime.clock import SystemClock
from tests.conformance.behaviours import BEHAVIOURS, Behaviour
from tests.conformance.embedded import try_embedded
from tests.conformance.sides import Finding, Side
from tests.conformance.table import Row, table

from .cluster import Binaries, Cluster
from .cluster.sweep import TEST_LABEL

DOCUMENT = Path(__file__).parents[2] / "docs" / "api-conformance.md"
FORGETTING = "410 after compaction"


@pytest.fixture(scope="module")
def rows() -> Iterator[dict[str, list[Row]]]:
    """What the tests saw; a run of all of them writes the document, so it shows nothing that was not seen."""
    seen: dict[str, list[Row]] = {}
    yield seen
    if set(seen) == set(BEHAVIOURS):
        DOCUMENT.write_text(table({name: seen[name] for name in BEHAVIOURS}))


def try_real(behaviour: Behaviour, cluster: Cluster) -> list[Finding]:
    """What one behaviour finds on the real cluster, in a namespace of its own."""
    namespace = f"behaviour-{secrets.token_hex(3)}"
    cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": {TEST_LABEL: ""}}})

    async def forget() -> None:
        # The API server answers from its cache what etcd has forgotten, until it starts anew. Not in a thread:
        # processes die with the thread that started them.
        cluster.compact_history()
        cluster.restart_apiserver(kill=True)

    async def main() -> list[Finding]:
        clock = SystemClock()
        async with HttpApi(from_kubeconfig([cluster.admin_kubeconfig], clock), clock=clock) as api:
            side = Side(api, namespace, forget)
            await behaviour(side)
            return side.findings

    return asyncio.run(main())


def check(name: str, cluster: Cluster, rows: dict[str, list[Row]]) -> None:
    embedded, real = try_embedded(BEHAVIOURS[name]), try_real(BEHAVIOURS[name], cluster)
    found = rows[name] = [Row(ours, theirs) for ours, theirs in zip(embedded, real, strict=True)]
    assert [row.real for row in found if row.real.answer != row.real.expected] == []
    assert [row for row in found if not row.same] == []


@pytest.mark.parametrize("name", [name for name in BEHAVIOURS if name != FORGETTING])
def test_embedded_cluster_and_api_server_agree(
    name: str, cluster: Cluster, crds: None, rows: dict[str, list[Row]]
) -> None:
    """What holds on the embedded cluster is only worth something if it holds on the real one."""
    check(name, cluster, rows)


def test_embedded_cluster_and_api_server_forget_alike(
    binaries: Binaries, tmp_path: Path, rows: dict[str, list[Row]]
) -> None:
    """On a cluster of its own: after a restart of the API server the others' watches take long to come back."""
    with Cluster(tmp_path, binaries) as cluster:
        check(FORGETTING, cluster, rows)
