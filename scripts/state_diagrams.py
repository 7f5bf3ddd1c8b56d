"""Draw the state machines of a machine's life from their tables into docs/internals/machine-states.md.

`--check` only says whether the file is up to date; without it the file is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pykarpenter.core.lifecycle import LIFECYCLE, Phase
from pykarpenter.core.reboot import REBOOT, RebootPhase
from pykarpenter.core.termination import CLAIM_TERMINATION, NODE_TERMINATION, ClaimPhase, NodePhase

TARGET = Path(__file__).resolve().parent.parent / "docs" / "internals" / "machine-states.md"

INTRODUCTION = """# The states of a machine

Written by `scripts/state_diagrams.py` from the tables in `core/lifecycle.py`, `core/termination.py` and
`core/reboot.py`; change those, not this file. An arrow is an observed fact; after the slash stands the condition that
is written on the NodeClaim, or why it is given up. A phase is always read off the objects, so a restart goes on where
the last process stopped.
"""

MACHINES: tuple[tuple[str, str, Mapping[Any, Any], str, tuple[str, ...]], ...] = (
    (
        "NodeClaim",
        "From request to working machine. A claim that is given up is deleted.",
        LIFECYCLE,
        Phase.LAUNCHING,
        (Phase.GIVEN_UP,),
    ),
    (
        "NodeClaim, deleting",
        "The finalizer goes in the last phase.",
        CLAIM_TERMINATION,
        ClaimPhase.STAMPING,
        (ClaimPhase.RELEASED,),
    ),
    (
        "Node, deleting",
        "The instance is deleted only after the drain, at the deadline, or when it is gone already.",
        NODE_TERMINATION,
        NodePhase.FENCING,
        (NodePhase.RELEASED,),
    ),
    (
        "Reboot",
        "Committed on the claim; a machine that is given up takes its claim along.",
        REBOOT,
        RebootPhase.DRAINING,
        (RebootPhase.ENDED, RebootPhase.GIVEN_UP),
    ),
)


def render() -> str:
    parts = [INTRODUCTION]
    for title, text, table, first, last in MACHINES:
        parts.append(f"## {title}\n\n{text}\n\n{_diagram(table, first, last)}")
    return "\n".join(parts)


def _diagram(table: Mapping[Any, Any], first: str, last: tuple[str, ...]) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {phase} --> {step.phase}: {fact}{_effect(step)}" for (phase, fact), step in table.items()]
    lines += [f"    {phase} --> [*]" for phase in last]
    return "\n".join([*lines, "```", ""])


def _effect(step: Any) -> str:
    if getattr(step, "give_up", ""):
        return f" / {step.give_up}"
    if getattr(step, "result", ""):
        return f" / {step.result}"
    condition = getattr(step, "condition", "") or ("Rebooting" if getattr(step, "reason", "") else "")
    if not condition:
        return ""
    reason = "" if step.reason == condition else f" {step.reason}"
    return f" / {condition}={step.status}{reason}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail when the file is not up to date")
    options = parser.parse_args(arguments)
    if not options.check:
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        TARGET.write_text(render())
        return 0
    if TARGET.exists() and TARGET.read_text() == render():
        return 0
    print(f"{TARGET.name} is out of date: run scripts/state_diagrams.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
