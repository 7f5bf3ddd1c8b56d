"""`python -m tests.transcripts [--rewrite]`: compare every transcript with what the program says now, or rewrite it."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from tests.transcripts.story import run

FOLDER = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rewrite", action="store_true", help="write the answers as they are now")
    options = parser.parse_args()
    different = 0
    for path in sorted(FOLDER.glob("*.txt")):
        written = path.read_text()
        now = run(written)
        if now != written and options.rewrite:
            path.write_text(now)
        elif now != written:
            different += 1
            sys.stdout.writelines(
                difflib.unified_diff(written.splitlines(True), now.splitlines(True), path.name, "now")
            )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
