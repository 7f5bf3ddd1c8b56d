"""`make soak WORKERS=n`: worlds shared among processes are the worlds of one process."""

import subprocess
import sys


def test_two_processes_find_what_one_finds():
    """The command itself: what a new interpreter must find by name breaks only there."""
    command = [sys.executable, "-m", "tests.soak", "--seeds", "2", "--first-seed", "3", "--no-shrink"]
    alone, shared = (
        subprocess.run([*command, "--workers", workers], capture_output=True, text=True, timeout=240, check=False)
        for workers in ("1", "2")
    )
    assert alone.returncode == shared.returncode == 0, shared.stdout + shared.stderr
    table = alone.stdout.partition("fault  fired")[2]
    assert table and shared.stdout.partition("fault  fired")[2] == table
