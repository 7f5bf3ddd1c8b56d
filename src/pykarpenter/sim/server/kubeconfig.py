"""The kubeconfig of a served cluster."""

from __future__ import annotations

import base64
import json
import os
from contextlib import suppress
from pathlib import Path

NAME = "pykarpenter"


def kubeconfig(url: str, authority: bytes, token: str) -> str:
    """The file's text. JSON is YAML, and needs no quoting rules of our own."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": NAME,
            "clusters": [
                {
                    "name": NAME,
                    "cluster": {
                        "server": url,
                        "certificate-authority-data": base64.b64encode(authority).decode(),
                    },
                }
            ],
            "users": [{"name": NAME, "user": {"token": token}}],
            "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        },
        indent=2,
    )


def target_problem(path: Path) -> str:
    """Why a kubeconfig must not or cannot be written there, or nothing: other people's files are never replaced."""
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist; make it, or give another file"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return "cannot be written; give a file in a folder of your own"
    if path.exists() and path.stat().st_size and not _is_ours(path):
        return "is there already and was not written by pykarpenter; give another file, or remove it"
    return ""


def _is_ours(path: Path) -> bool:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and [cluster.get("name") for cluster in found.get("clusters") or ()] == [NAME]


def remove_kubeconfig(path: Path, url: str) -> None:
    """Removes the file unless another cluster has taken its place: nothing answers at its address any more."""
    with suppress(OSError):
        if url in path.read_text():
            path.unlink()


def write_kubeconfig(path: Path, text: str) -> None:
    """Writes a file that only its owner can read: it holds a token."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
