"""One child process: its log file, its signals, its end.

A child is only ever signalled through the handle that started it, so nothing else on the machine can be
hit. Children get a session of their own (a Ctrl-C at the terminal reaches the test run, which then stops
them in order) and on Linux die with the test run even when that is killed outright.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def _death_signal_setter() -> Callable[[], None] | None:
    """What the child runs before its program starts, prepared in the parent: after fork little is safe."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return die_with_parent


class Process:
    """A running program with its output in `log_path`; a second start appends to the same log."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            self._child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
                preexec_fn=_death_signal_setter(),
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._child.poll()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log().splitlines()[-lines:])

    def send(self, signal_number: int) -> None:
        """Signal the process if it still runs; `Popen` never signals a pid that was already reaped."""
        self._child.send_signal(signal_number)

    def pause(self) -> None:
        """SIGSTOP: the process keeps its sockets and locks but does nothing, like a frozen machine."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self._child.wait(timeout=30)

    def wait(self, timeout_s: float) -> int:
        """Wait for the process to end by itself; its exit code."""
        return self._child.wait(timeout=timeout_s)

    def terminate(self, timeout_s: float = 20.0) -> int:
        """SIGTERM, then SIGKILL when it does not end in time; its exit code."""
        if self.is_running:
            self.send(signal.SIGTERM)
            # A paused process would only see the SIGTERM once it goes on.
            self.send(signal.SIGCONT)
        try:
            return self._child.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._child.wait()


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with `changes`, without the proxies that would catch loopback traffic."""
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    return {**kept, **changes}
