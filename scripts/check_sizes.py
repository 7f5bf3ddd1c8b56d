"""Refuse modules above 600 lines and functions above 60, unless an allow-list entry gives the reason."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

MAX_MODULE = 600
MAX_FUNCTION = 60

# "path" or "path::function" -> why it may be longer.
ALLOWED: dict[str, str] = {}


def problems(root: Path) -> list[str]:
    found: list[str] = []
    for path in sorted((root / "src").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        lines = text.count("\n") + 1
        if lines > MAX_MODULE and name not in ALLOWED:
            found.append(f"{name}: {lines} lines, at most {MAX_MODULE}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION and f"{name}::{node.name}" not in ALLOWED:
                    found.append(f"{name}::{node.name}: {length} lines, at most {MAX_FUNCTION}")
    return found


if __name__ == "__main__":
    listed = problems(Path(__file__).resolve().parent.parent)
    print("\n".join(listed) or "sizes: ok")
    sys.exit(1 if listed else 0)
