"""Real clusters for the end-to-end tests.

Each worker of the test run (`make e2e` uses two) has one cluster for all its tests. A test finds it empty:
after each one the programs it started are ended and everything it made is swept away.
"""

from __future__ import annotations

import gc
import re
import secrets
import tempfile
import warnings
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path

import pytest

from pykarpenter.api import kinds

from .cluster import ApiError, Binaries, Cluster, ProgramRunner, ensure_binaries, wait_until
from .cluster.sweep import TEST_LABEL, sweep

_HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[_HAS_FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    return ensure_binaries()


@pytest.fixture(scope="session")
def shared_cluster(binaries: Binaries) -> Iterator[Cluster]:
    """This worker's cluster; tests ask for `cluster` instead, which is cleaned up after them."""
    with tempfile.TemporaryDirectory(prefix="pykarpenter-e2e-") as folder, Cluster(Path(folder), binaries) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    yield shared_cluster
    shared_cluster.heal()
    sweep(shared_cluster.admin)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A fresh namespace, named after the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = f"{words[:40].strip('-')}-{secrets.token_hex(3)}"
    cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": {TEST_LABEL: ""}}})
    return name


@pytest.fixture
def programs(cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProgramRunner]:
    """Starts `pykarpenter` commands against the cluster; their logs are shown when the test fails."""
    runner = ProgramRunner(tmp_path, cluster.admin_kubeconfig)
    yield runner
    logs = runner.stop_all()
    if request.node.stash.get(_HAS_FAILED, True):
        for name, tail in logs.items():
            print(f"--- end of the log of {name}\n{tail}")


@pytest.fixture(scope="session")
def crds(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The kinds that `pykarpenter crds` prints, served by this worker's cluster."""
    runner = ProgramRunner(tmp_path_factory.mktemp("crds"), shared_cluster.admin_kubeconfig)
    printed = runner.call("crds")
    assert printed.returncode == 0, printed.stderr
    shared_cluster.kubectl("apply", "--server-side", "-f", "-", input=printed.stdout)
    # Not `kubectl wait`: it gives up on a definition that has no conditions yet. Until a kind is served the answer is
    # 404 or 429.
    for kind in (kinds.NODE_POOL, kinds.NODE_CLAIM, kinds.NODE_OVERLAY, kinds.CAPACITY_BUFFER, kinds.KWOK_NODE_CLASS):
        find = partial(shared_cluster.admin.find, kind.path())
        wait_until(find, what=f"{kind.plural} are served", retry_on=(ApiError,))


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    """A test that drops a socket or a file fails itself, not whichever one runs when the collector finds it."""
    yield
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    assert not found, [str(warning.message) for warning in found]
