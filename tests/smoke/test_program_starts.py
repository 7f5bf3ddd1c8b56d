"""The program answers at all: the first thing a user tries."""

import json
import subprocess
import sys


def test_version_prints_the_karpenter_release_it_follows():
    """Users check compatibility before they install."""
    out = subprocess.run(
        [sys.executable, "-m", "pykarpenter.cli", "version", "-o", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(out.stdout)["karpenter"] == "1.15"


def test_unknown_command_exits_1_and_names_it():
    """Scripts rely on exit codes; a person on the name."""
    out = subprocess.run([sys.executable, "-m", "pykarpenter.cli", "no-such-command"], capture_output=True, text=True)
    assert out.returncode == 1
    assert "no-such-command" in out.stderr
