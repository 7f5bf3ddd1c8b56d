"""Decoding drops what nobody reads of a pod; what somebody does read is listed here, and the code is searched for more.

On the in-process store nothing is dropped, so a key that only a real cluster loses would go unnoticed everywhere else.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pykarpenter
from pykarpenter.api import labels
from pykarpenter.api.kinds import POD
from pykarpenter.core.disruption.deletion_costs import WRITTEN
from pykarpenter.kube.codec import Codec
from pykarpenter.kube.interning import PodInterner
from pykarpenter.providers.kwok.kubelet_status import COMPLETES_AFTER, STOPS_AFTER

SOURCE = Path(pykarpenter.__file__).parent
# Folders whose code sees pods that a real API server sent.
FOLDERS = ("controllers", "core", "state", "providers")
ANNOTATIONS = {
    labels.DO_NOT_DISRUPT,
    labels.DISRUPTION_COST,
    labels.POD_DELETION_COST,
    labels.CAPACITY_BUFFER_FAKE_POD,
    WRITTEN,
    COMPLETES_AFTER,
    STOPS_AFTER,
}
CONDITIONS = {"PodScheduled", "Ready", "PodResizePending", "DisruptionTarget"}
# Reads whose key is a parameter: every caller's value is in the list above.
BY_PARAMETER = {
    ("providers/kwok/kubelet_status.py", "key"),
    ("controllers/metrics/pods.py", "condition"),
    ("core/disruption/costs.py", "key"),
}


def decoded(body: dict[str, Any]) -> Any:
    codec = Codec(POD, PodInterner(), lambda *_: pytest.fail("a good pod was set aside"))
    return codec.object(msgspec.json.encode(body))


@pytest.mark.parametrize("key", sorted(ANNOTATIONS))
def test_annotations_that_decisions_read_survive_decoding(key: str) -> None:
    pod = decoded({"metadata": {"name": "a", "annotations": {key: "1", "example.com/noise": "x"}}})
    assert pod.metadata.annotations == {key: "1"}


@pytest.mark.parametrize("kind", sorted(CONDITIONS))
def test_conditions_that_decisions_read_survive_decoding(kind: str) -> None:
    told = {
        "type": kind,
        "status": "False",
        "reason": "R",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    (found,) = decoded({"metadata": {"name": "a"}, "status": {"conditions": [told]}}).status.conditions
    assert msgspec.to_builtins(found).items() >= told.items()


def test_every_read_of_a_pods_annotations_and_conditions_is_listed() -> None:
    """A new key must be put on the lists above, and so be proved to arrive."""
    found = dict(reads())
    assert len(found) > 5, "the search itself must find something"
    unlisted = {where: key for where, key in found.items() if key not in ANNOTATIONS | CONDITIONS}
    assert unlisted == {}


def reads() -> Iterator[tuple[str, str]]:
    """Place and key of each `pod.metadata.annotations.get(KEY)`, `[KEY]`, `KEY in …`, and of conditions by type."""
    for folder in FOLDERS:
        for path in sorted((SOURCE / folder).rglob("*.py")):
            name = path.relative_to(SOURCE).as_posix()
            tree = ast.parse(path.read_text())
            module = importlib.import_module("pykarpenter." + name.removesuffix(".py").replace("/", "."))
            aliases = {"pod.metadata.annotations", "pod.status.conditions", *_aliases(tree)}
            for node in ast.walk(tree):
                for key in _keys(node, aliases):
                    text = ast.unparse(key)
                    if (name, text) not in BY_PARAMETER:
                        yield f"{name}:{key.lineno}", eval(text, vars(module))


def _aliases(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == "pod.metadata.annotations":
            yield from (ast.unparse(target) for target in node.targets)


def _keys(node: ast.AST, aliases: set[str]) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call) and node.args:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and ast.unparse(node.func.value) in aliases:
            yield node.args[0]
        by_type = ast.unparse(node.func).endswith(("find_condition", "condition_status")) and len(node.args) > 1
        if by_type and ast.unparse(node.args[0]) in aliases:
            yield node.args[1]
    elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in aliases:
        yield node.slice
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        if ast.unparse(node.comparators[0]) in aliases:
            yield node.left
    elif isinstance(node, ast.GeneratorExp | ast.ListComp) and _walks_conditions(node):
        # any(c.type == "PodScheduled" … for c in pod.status.conditions)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Compare) and ast.unparse(inner.left).endswith(".type"):
                yield inner.comparators[0]


def _walks_conditions(node: ast.GeneratorExp | ast.ListComp) -> bool:
    return any(ast.unparse(part.iter) == "pod.status.conditions" for part in node.generators)
