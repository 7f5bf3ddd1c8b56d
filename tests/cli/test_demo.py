"""The demo as a program: where it writes its kubeconfig, and what is left when it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pykarpenter.cli.demo import command
from pykarpenter.sim.server.kubeconfig import kubeconfig, remove_kubeconfig, target_problem


def test_a_kubeconfig_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """Flag, file and remedy, and nothing was started."""
    result = CliRunner().invoke(command, ["--kubeconfig", str(tmp_path / "none" / "config")], standalone_mode=False)
    assert result.return_value == 1
    assert result.output.splitlines() == [
        f"--kubeconfig: {tmp_path}/none/config: "
        f"the folder {tmp_path}/none does not exist; make it, or give another file"
    ]


@pytest.mark.parametrize(
    "text", ["apiVersion: v1\nkind: Config\nclusters: []\n", '{"clusters": [{"name": "prod"}]}', "x"]
)
def test_a_kubeconfig_of_somebody_else_is_not_replaced(tmp_path: Path, text: str) -> None:
    """Whoever names ~/.kube/config would lose the way to every cluster."""
    path = tmp_path / "config"
    path.write_text(text)
    assert "was not written by pykarpenter" in target_problem(path)
    path.write_text(kubeconfig("https://127.0.0.1:1", b"ca", "token"))
    assert target_problem(path) == ""


def test_the_kubeconfig_of_a_later_demo_stays(tmp_path: Path) -> None:
    """Two demos share the default file; the first to end must not take the second's."""
    path = tmp_path / "config"
    path.write_text(kubeconfig("https://127.0.0.1:2", b"ca", "token"))
    remove_kubeconfig(path, "https://127.0.0.1:1")
    assert path.exists()
    remove_kubeconfig(path, "https://127.0.0.1:2")
    assert not path.exists()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_an_ended_demo_leaves_nothing_behind(tmp_path: Path, ending: signal.Signals) -> None:
    """No token on disk for a cluster that is gone, whoever ends the program."""
    path = tmp_path / "config"
    # A shell that starts programs in the background has them ignore Ctrl-C; the test may run under one.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from pykarpenter.cli.main import main; main()"
    words = [sys.executable, "-c", code, "demo", "--kubeconfig", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "the cluster is up" in process.stdout.readline()
        assert path.exists()
        process.send_signal(ending)
        rest = process.stdout.read()
        assert process.wait(timeout=60) == 0, rest
    assert "Traceback" not in rest and not path.exists()
