"""Which rights the code uses, read off its calls.

Every request goes through a `KubeApi` with the kind as first argument, and every watched kind through a cache, a
subscription or a reflector. The few places where the kind is a variable are listed with what it can be; a new one
that is not listed is an error, so nothing can hide.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pykarpenter
from pykarpenter.api import kinds
from pykarpenter.api.kinds import Kind
from pykarpenter.cloud.permissions import Right
from pykarpenter.controllers import buffers, operator

SOURCE = Path(pykarpenter.__file__).parent
VERBS = {"get": "get", "list_page": "list", "create": "create", "patch": "patch", "delete": "delete"}
WATCHED = ("list", "watch")

# Wrappers that pass on what others ask for, and commands that users run with their own rights.
PASSED_ON = ("kube/gated.py", "kube/reflector.py", "kube/contract.py", "controllers/watches.py")
OTHER_COMMANDS = ("controllers/release.py",)

CORE = "core"
# Folders and modules whose calls belong to a part that can be left out.
PARTS = {
    "controllers/buffers.py": "gate CapacityBuffer",
    "controllers/overlays.py": "gate NodeOverlay",
    "controllers/disruption/pod_costs.py": "gate PodDeletionCostManagement",
    "controllers/nodeclaim/nomination.py": "setting nominate-pods",
    "providers/kwok/kubelet": "kubelets",
    "providers/kwok/publish": "drivers",
    "providers/kwok": "provider kwok",
    "sim/cloud": "provider sim",
}


@dataclass(frozen=True)
class Use:
    """One right that one place in the code uses; `part` is what must be installed for it to happen."""

    part: str
    right: Right
    where: str


# Calls whose kind or subresource is a variable: module and variable -> what it can be.
VARIABLES: dict[tuple[str, str], list[Kind[Any]]] = {
    # Core kinds, and CapacityBuffers with their gate, which watches them anyway.
    ("controllers/metrics/conditions.py", "kind"): [kinds.NODE_CLAIM, kinds.NODE_POOL, kinds.NODE],
    ("controllers/buffers.py", "kind"): [kinds.POD_TEMPLATE, *buffers.SCALABLE.values()],
    # Only asked where definitions may not be read.
    ("controllers/startup_checks.py", "kind"): [],
    # The provider's classes: see `class_permissions`.
    ("controllers/nodepool/pools.py", "kind"): [],
    ("controllers/overlays.py", "kind"): [],
    ("controllers/nodeclaim/disruption.py", "kind"): [],
    ("controllers/nodepool/pools.py", "self.class_kinds[ref.group, ref.kind]"): [],
}
SUBRESOURCES: dict[tuple[str, str], tuple[str, ...]] = {
    ("controllers/nodepool/writes.py", "subresource"): ("", "status"),
    ("sim/cloud/cloud.py", "subresource"): ("", "status"),
}


def uses(folders: tuple[str, ...] = ("controllers", "kube", "providers", "sim/cloud")) -> list[Use]:
    """Every use in the code, in the order of files and lines."""
    found: list[Use] = list(_watched_by_settings())
    for folder in folders:
        for path in sorted((SOURCE / folder).rglob("*.py")):
            name = path.relative_to(SOURCE).as_posix()
            if name not in (*PASSED_ON, *OTHER_COMMANDS):
                found.extend(_uses_in(name, path))
    return found


def _watched_by_settings() -> Iterator[Use]:
    where = "controllers/operator.py"
    for part, watched in (
        (CORE, operator.CORE_KINDS),
        ("setting scheduler-config", operator.SPREAD_KINDS),
        ("setting ignore-dra-requests", operator.DEVICE_KINDS),
    ):
        for kind in watched:
            for verb in WATCHED:
                yield Use(part, ("", kind.group, kind.plural, verb), where)


def _uses_in(name: str, path: Path) -> Iterator[Use]:
    module = importlib.import_module("pykarpenter." + name.removesuffix(".py").replace("/", "."))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            for kind, verb, subresource in _requests(name, module, node):
                resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
                yield Use(
                    _part(name, kind), (_namespace(name, kind), kind.group, resource, verb), f"{name}:{node.lineno}"
                )


def _requests(name: str, module: ModuleType, call: ast.Call) -> Iterator[tuple[Kind[Any], str, str]]:
    if isinstance(call.func, ast.Name):
        verbs = {"list_all": ("list",), "Reflector": WATCHED}.get(call.func.id, ())
        if verbs:
            yield from ((kind, verb, "") for kind in _kinds(name, module, call.args[1]) for verb in verbs)
        return
    if not isinstance(call.func, ast.Attribute):
        return
    receiver, method = ast.unparse(call.func.value), call.func.attr
    if method in ("of", "subscribe") and receiver.endswith("caches"):
        yield from ((kind, verb, "") for kind in _kinds(name, module, call.args[0]) for verb in WATCHED)
    if not receiver.endswith("api"):
        return
    if method in ("evict", "bind"):
        yield kinds.POD, "create", "eviction" if method == "evict" else "binding"
    elif method in VERBS:
        for kind in _kinds(name, module, call.args[0]):
            yield from ((kind, VERBS[method], subresource) for subresource in _subresources(name, call))


def _kinds(name: str, module: ModuleType, argument: ast.expr) -> list[Kind[Any]]:
    text = ast.unparse(argument)
    known = VARIABLES.get((name, text))
    if known is not None:
        return known
    value: Any = module
    for step in text.split("."):
        value = getattr(value, step, None)
    assert isinstance(value, Kind), f"{name}: {text} is not a kind that is known here; list it in VARIABLES"
    return [value]


def _subresources(name: str, call: ast.Call) -> tuple[str, ...]:
    for keyword in call.keywords:
        if keyword.arg == "subresource":
            if isinstance(keyword.value, ast.Constant):
                return (str(keyword.value.value),)
            text = ast.unparse(keyword.value)
            assert (name, text) in SUBRESOURCES, f"{name}: subresource={text}; list it in SUBRESOURCES"
            return SUBRESOURCES[name, text]
    return ("",)


def _part(name: str, kind: Kind[Any]) -> str:
    if kind in operator.DEVICE_KINDS and name.startswith("controllers/"):
        return "setting ignore-dra-requests"
    return next((part for prefix, part in PARTS.items() if name.startswith(prefix)), CORE)


def _namespace(name: str, kind: Kind[Any]) -> str:
    if kind is kinds.CONFIG_MAP:
        return "."
    if kind is not kinds.LEASE:
        return ""
    return "kube-node-lease" if name.startswith("providers/kwok") else "."
