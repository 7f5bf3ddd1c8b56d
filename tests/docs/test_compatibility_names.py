"""docs/compatibility.md names every event, condition and log message that users rely on, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pykarpenter
from pykarpenter.api import kinds
from pykarpenter.core import buffer_conditions, conditions, lifecycle, pool_conditions, registration_health
from pykarpenter.core.interruption import ANSWERS

SOURCE = Path(pykarpenter.__file__).parent
DOCUMENT = Path(__file__).parents[2] / "docs" / "compatibility.md"
# Calls that publish an event, or make what is published later.
PUBLISHING = re.compile(r"(publish|_publish|Notice|node_notice|select|warn|_warn)$")
REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z]+[a-z]*)+|Evicted|Disrupted|Nominated|Finalized")


def documented(section: str) -> list[str]:
    """First cells of a table that are code, below its heading."""
    text = DOCUMENT.read_text().split(f"### {section}\n", 1)[1].split("\n#", 1)[0]
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


@cache
def modules() -> dict[str, ast.Module]:
    """The program's own code; the embedded cluster plays Kubernetes' events, which are not ours."""
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text())
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.is_relative_to(SOURCE / "sim")
    }


def literals(node: ast.AST) -> Iterator[str]:
    for found in ast.walk(node):
        if isinstance(found, ast.Constant) and isinstance(found.value, str):
            yield found.value


def published() -> set[str]:
    """Reasons that stand as words in a call that publishes, and those of interruptions."""
    other = {kind.kind for kind in kinds.ALL} | {"Normal", "Warning"}
    found = {answer.event for answer in ANSWERS.values()}
    for tree in modules().values():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and PUBLISHING.search(ast.unparse(call.func)):
                words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                found.update(word for word in words if REASON.fullmatch(word) and word not in other)
    return found


def test_every_published_event_is_documented() -> None:
    """An event that nobody can look up helps nobody."""
    assert sorted(published() - set(documented("Events"))) == []


def test_every_documented_event_is_published() -> None:
    """A reason that never comes is an alert that never fires."""
    words = {text for tree in modules().values() for text in literals(tree)}
    assert sorted(set(documented("Events")) - words) == []
    assert len(documented("Events")) == len(set(documented("Events"))) > 30


def test_conditions_are_those_of_the_code() -> None:
    """Both ways: types that the code has, and types that the table has."""
    claim = {
        value
        for name, value in vars(lifecycle).items()
        if name.isupper() and isinstance(value, str) and re.fullmatch(r"(pykarpenter\.sh/)?[A-Z][A-Za-z]+", value)
    }
    pool = {
        value
        for name, value in vars(pool_conditions).items()
        if name.isupper() and isinstance(value, str) and re.fullmatch(r"[A-Z][A-Za-z]+", value)
    }
    buffer = {buffer_conditions.READY_FOR_PROVISIONING, buffer_conditions.PROVISIONING}
    dependents = {name for found in (conditions.NODE_POOL, conditions.NODE_CLAIM) for name in found.dependents}
    found = claim | pool | buffer | dependents | {conditions.READY, registration_health.CONDITION}
    assert set(documented("Conditions")) == found - {conditions.TRUE, conditions.FALSE, conditions.UNKNOWN}


def test_log_messages_are_in_the_code() -> None:
    """Alerts match on words; changing one is a change of the interface."""
    words = {text for tree in modules().values() for text in literals(tree)}
    assert [message for message in documented("Log messages") if message not in words] == []


def test_controllers_are_in_the_code() -> None:
    """Dashboards group by this label."""
    words = {text for tree in modules().values() for text in literals(tree)}
    assert [name for name in documented("Controllers") if name not in words] == []
    named = {word for word in words if re.fullmatch(r"(nodeclaim|nodepool|node|state|static|metrics)\.[a-z]+", word)}
    unknown = {name for name in named if name not in documented("Controllers")}
    assert sorted(unknown) == []


def test_steps_that_users_alert_on_are_documented() -> None:
    """Each step of a machine's life has one message."""
    steps = {f"{step} nodeclaim" for step in ("created", "launched", "registered", "initialized", "deleted")}
    assert steps <= set(documented("Log messages"))
