"""Compare the promises that docs/promises lists with the tests that hold them.

A promise is a row `| API-1.1.2 | text |` of a table under docs/promises; a test holds it with
`@pytest.mark.promise("API-1.1.2")`. Tests are read as syntax trees and never run, so the answer does not depend on
what is installed. Unknown and doubly defined ids always fail; promises without a test fail only with `--strict`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ID = re.compile(r"[A-Z]{3}-\d+(\.\d+)+")


@dataclass
class Findings:
    """Promises with their text, the places that use each id, and what is wrong with either."""

    defined: dict[str, str] = field(default_factory=dict)
    used: dict[str, list[str]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def untested(self) -> list[str]:
        return sorted(set(self.defined) - set(self.used), key=sort_key)

    @property
    def unknown(self) -> list[str]:
        return sorted(set(self.used) - set(self.defined), key=sort_key)


def sort_key(promise: str) -> tuple[str, list[int]]:
    document, _, number = promise.partition("-")
    return document, [int(part) if part.isdigit() else 0 for part in number.split(".")]


def read_tables(folder: Path, findings: Findings) -> None:
    for path in sorted(folder.rglob("*.md")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if not line.startswith("|") or not ID.fullmatch(cells[0]):
                continue
            where = f"{path.name}:{number}"
            if len(cells) < 2 or not cells[1]:
                findings.errors.append(f"{where}: {cells[0]} has no text")
            if cells[0] in findings.defined:
                findings.errors.append(f"{where}: {cells[0]} is defined twice")
            findings.defined[cells[0]] = cells[1] if len(cells) > 1 else ""


def promise_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Every `…mark.promise(…)`: as decorator, `pytestmark`, or the marks of a parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "promise":
            holder = node.func.value
            if isinstance(holder, ast.Attribute) and holder.attr == "mark":
                yield node


def read_tests(folder: Path, findings: Findings) -> None:
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder.parent).as_posix()
        for call in promise_calls(ast.parse(path.read_text(), filename=name)):
            where = f"{name}:{call.lineno}"
            for argument in call.args:
                if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                    findings.errors.append(f"{where}: a promise id must be written as plain text")
                else:
                    findings.used.setdefault(argument.value, []).append(where)


def collect(root: Path) -> Findings:
    findings = Findings()
    read_tables(root / "docs" / "promises", findings)
    read_tests(root / "tests", findings)
    findings.errors += [
        f"{where}: {promise} is in no table of docs/promises"
        for promise in findings.unknown
        for where in findings.used[promise]
    ]
    return findings


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strict", action="store_true", help="list promises without a test, and fail if there are any")
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the project's folder"
    )
    options = parser.parse_args(arguments)
    findings = collect(options.root)
    for error in findings.errors:
        print(error)
    if options.strict:
        for promise in findings.untested:
            print(f"no test: {promise} {findings.defined[promise]}")
    held = len(findings.defined) - len(findings.untested)
    print(f"promises: {len(findings.defined)} defined, {held} with a test, {len(findings.errors)} errors")
    return 1 if findings.errors or (options.strict and findings.untested) else 0


if __name__ == "__main__":
    sys.exit(main())
