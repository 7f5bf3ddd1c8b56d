"""Where the programs of a Kubernetes control plane are, built from source when they are nowhere.

The versions are those of the go.mod files under `modules/`. Results go into the user's cache folder, one
folder per version, never into the repository; a lock keeps two test runs from building at once. What
`KUBEBUILDER_ASSETS` holds is used as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .toolchain import find_go, go_environment

_MODULES = Path(__file__).parent / "modules"


@dataclass(frozen=True)
class Source:
    """A Go module of ours, and which programs come out of it."""

    name: str
    module: str
    programs: dict[str, str]
    typical_time: str

    @property
    def folder(self) -> Path:
        return _MODULES / self.name

    @property
    def version(self) -> str:
        text = (self.folder / "go.mod").read_text()
        match = re.search(rf"^require {re.escape(self.module)} (v\S+)$", text, re.MULTILINE)
        if match is None:
            raise LookupError(f"{self.folder / 'go.mod'} does not require {self.module} on a line of its own")
        return match[1]

    def link_flags(self) -> str:
        flags = "-s -w"
        if self.name == "kubernetes":
            stamp = "k8s.io/component-base/version"
            major, minor, _ = self.version.removeprefix("v").split(".", 2)
            for variable, value in (("gitVersion", self.version), ("gitMajor", major), ("gitMinor", minor)):
                flags += f" -X {stamp}.{variable}={value}"
        return flags


SOURCES = (
    Source("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"}, "half a minute"),
    Source(
        "kubernetes",
        "k8s.io/kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl")
        },
        "five minutes",
    ),
)


@dataclass(frozen=True)
class Binaries:
    """Paths of the five programs."""

    etcd: Path
    kube_apiserver: Path
    kube_scheduler: Path
    kube_controller_manager: Path
    kubectl: Path


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pykarpenter"


def ensure_binaries() -> Binaries:
    """All five programs, building those that neither `KUBEBUILDER_ASSETS` nor the cache holds."""
    found = _find()
    if any(path is None for path in found.values()):
        with _locked(cache_folder()):
            # Someone else may have built them while we waited for the lock.
            for source in SOURCES:
                if any(_find()[program] is None for program in source.programs):
                    _build(source)
        found = _find()
    return Binaries(**{name.replace("-", "_"): path for name, path in found.items() if path is not None})


def _find() -> dict[str, Path | None]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    found: dict[str, Path | None] = {}
    for source in SOURCES:
        for program in source.programs:
            candidates = [_output_folder(source) / program]
            if assets:
                candidates.insert(0, Path(assets) / program)
            found[program] = next((path for path in candidates if os.access(path, os.X_OK)), None)
    return found


def _output_folder(source: Source) -> Path:
    machine = f"{platform.system()}-{platform.machine()}".lower()
    return cache_folder() / source.name / f"{source.version}-{machine}"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another run is building; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(source: Source) -> None:
    """Build all programs of one source; they appear in the cache only when all of them are whole."""
    go = find_go(cache_folder(), _say)
    output = _output_folder(source)
    output.mkdir(parents=True, exist_ok=True)
    _say(f"building {source.name} {source.version}, about {source.typical_time} on two cores the first time")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=output, prefix="building-") as work:
        for program, package in source.programs.items():
            # One program after the other: linking several at once needs gigabytes of memory.
            command = [str(go), "build", "-trimpath", "-ldflags", source.link_flags()]
            _run([*command, "-o", f"{work}/{program}", package], source.folder, program)
        for program in source.programs:
            shutil.move(f"{work}/{program}", output / program)
    _say(f"built {source.name} {source.version} in {time.monotonic() - started:.0f} s")


def _run(command: list[str], folder: Path, what: str) -> None:
    started = time.monotonic()
    with subprocess.Popen(command, cwd=folder, env=go_environment(), stdout=sys.stderr) as child:
        while True:
            try:
                code = child.wait(timeout=30)
                break
            except subprocess.TimeoutExpired:
                _say(f"  {what}: still building after {time.monotonic() - started:.0f} s")
    if code:
        raise RuntimeError(f"building {what} failed with exit code {code}; the output of go is above")
    _say(f"  {what}: {time.monotonic() - started:.0f} s")


def _say(text: str) -> None:
    print(f"e2e: {text}", file=sys.stderr, flush=True)
