"""Stamps the commit into the package, so that logs and metrics of an installed program name it.

The commit is `PYKARPENTER_COMMIT`, or the HEAD of the checkout that is built from; without either nothing is stamped.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable install follows its checkout, which is asked each time.
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root, "src", "pykarpenter", "runtime")))
        import commit

        found = commit.shortened(os.environ.get("PYKARPENTER_COMMIT") or commit.head_of(Path(self.root, ".git")))
        if found:
            stamp = Path(tempfile.mkdtemp(prefix="pykarpenter-build-"), commit.STAMP)
            stamp.write_text(found)
            build_data["force_include"][str(stamp)] = f"pykarpenter/{commit.STAMP}"
