"""The kubeconfig of a served cluster."""

from __future__ import annotations

import base64
import json
import os
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


def write_kubeconfig(path: Path, text: str) -> None:
    """Writes a file that only its owner can read: it holds a token."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
