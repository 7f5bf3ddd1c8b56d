"""Which commit of the sources this program was built from, for its logs and `karpenter_build_info`.

A built package carries the commit in a file of its own (`hatch_build.py` writes it); a checkout is asked for its HEAD.
Anything else is unknown, which is an answer and never an error.
"""

from __future__ import annotations

import functools
import re
from importlib import resources
from pathlib import Path

STAMP = "build-commit.txt"
# As long as Karpenter writes it.
_LENGTH = 7
_HASH = re.compile(r"[0-9a-f]{7,64}")


@functools.cache
def build_commit() -> str:
    """The commit's first seven digits; empty when it is not known."""
    package = resources.files("pykarpenter")
    try:
        found = package.joinpath(STAMP).read_text()
    except OSError:
        # `src/pykarpenter` of a checkout; an installed package has no such folder above it.
        root = Path(str(package)).parent.parent
        found = head_of(root / ".git") if (root / "src" / "pykarpenter").is_dir() else ""
    return shortened(found)


def shortened(text: str) -> str:
    text = text.strip().lower()
    return text[:_LENGTH] if _HASH.fullmatch(text) else ""


def head_of(git: Path) -> str:
    """The commit that a checkout's HEAD names, read from its files; empty when it cannot be read."""
    try:
        if git.is_file():
            # A second working tree: the file says where its own HEAD is kept.
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = git / "commondir"
        shared = git / common.read_text().strip() if common.is_file() else git
        if (shared / name).is_file():
            return (shared / name).read_text()
        packed = (shared / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
    except (OSError, UnicodeDecodeError):
        return ""
