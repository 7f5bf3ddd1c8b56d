"""The chart as the real helm renders it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts" / "pykarpenter"
HELM = Path(sys.executable).parent / "helm"
NAMESPACE = "karpenter"


def render(values: dict[str, Any] | None = None, *, namespace: str = NAMESPACE, crds: bool = False) -> str:
    """`helm template`, with values as a user's file would give them."""
    command = [str(HELM), "template", "karpenter", str(CHART), "--namespace", namespace, "--values", "-"]
    if crds:
        command.append("--include-crds")
    done = subprocess.run(
        command, input=json.dumps(values or {}), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(values: dict[str, Any] | None = None, **how: Any) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(render(values, **how)) if found]


def of_kind(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (one,) = (obj for obj in found if obj["kind"] == kind)
    return one


def container(found: list[dict[str, Any]]) -> dict[str, Any]:
    controller: dict[str, Any] = of_kind(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return controller


def environment(found: list[dict[str, Any]]) -> dict[str, str]:
    """Variables with a value; those that Kubernetes fills in are left out."""
    return {item["name"]: item["value"] for item in container(found)["env"] if "value" in item}
