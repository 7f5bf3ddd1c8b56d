"""The program under test as a process of its own.

Its settings come from the environment, as in a Deployment; its ports are free ones and its output goes to
a file. What a runner started it also ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from .flags import HOST
from .ports import free_ports
from .processes import Process, environment
from .waiting import wait_until

PROGRAM = Path(sys.executable).parent / "pykarpenter"
LEASE_NAMESPACE = "kube-system"


class Program(Process):
    """A running `pykarpenter` command."""

    def __init__(self, name: str, command: list[str], *, log_path: Path, env: dict[str, str]) -> None:
        super().__init__(name, [PROGRAM, *command], log_path=log_path, env=env)
        self._metrics_port, self._health_port = env["METRICS_PORT"], env["HEALTH_PROBE_PORT"]

    def probe(self, path: str) -> int | None:
        """The status code of a health endpoint (`/readyz`), None while nobody answers."""
        try:
            return _fetch(f"http://{HOST}:{self._health_port}{path}")[0]
        except OSError:
            return None

    def metrics(self) -> str:
        return _fetch(f"http://{HOST}:{self._metrics_port}/metrics")[1]

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        wait_until(
            lambda: not self.is_running or self.probe("/readyz") == 200,
            timeout_s,
            what=lambda: f"{self.name} is ready; its log ends with\n{self.log_tail()}\n",
        )
        if not self.is_running:
            raise RuntimeError(f"{self.name} ended with {self.exit_code}:\n{self.log_tail()}")

    def log_entries(self) -> list[dict[str, Any]]:
        """The structured log lines; other output is left out."""
        entries: list[dict[str, Any]] = []
        for line in self.log().splitlines():
            if line.startswith("{") and line.endswith("}"):
                entries.append(json.loads(line))
        return entries


class ProgramRunner:
    """Starts `pykarpenter` commands against one API server and ends them all at the end of a test."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._started: list[Program] = []

    def start(
        self,
        *command: str,
        name: str | None = None,
        kubeconfig: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> Program:
        """Start a command that keeps running (`run`, `kubelets`); it is not waited for."""
        name = name or f"{command[0]}-{len(self._started)}"
        program = Program(
            name,
            list(command),
            log_path=self._folder / f"{name}.log",
            env=self._environment(kubeconfig, env),
        )
        self._started.append(program)
        return program

    def call(
        self,
        *command: str,
        input: str | None = None,
        kubeconfig: Path | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command that ends by itself (`crds`, `version`), whatever its exit code."""
        return subprocess.run(
            [PROGRAM, *command],
            input=input,
            env=self._environment(kubeconfig, env),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def stop_all(self) -> dict[str, str]:
        """kill -9 for all that still run (an orderly stop is for a test to ask for); the ends of their logs."""
        for program in self._started:
            program.kill()
        return {program.name: program.log_tail(60) for program in self._started}

    def _environment(self, kubeconfig: Path | None, env: dict[str, str] | None) -> dict[str, str]:
        metrics_port, health_port = free_ports(2)
        defaults = {
            "KUBECONFIG": str(kubeconfig or self._kubeconfig),
            "METRICS_PORT": str(metrics_port),
            "HEALTH_PROBE_PORT": str(health_port),
            "LEADER_ELECTION_NAMESPACE": LEASE_NAMESPACE,
            "PYTHONUNBUFFERED": "1",
        }
        return environment(**{**defaults, **(env or {})})


def _fetch(url: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
