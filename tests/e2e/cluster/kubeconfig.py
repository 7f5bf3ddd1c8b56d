"""Who may talk to the test cluster, and the kubeconfig files that say so.

Static users come from the API server's token file, which it reads only when it starts; service accounts
get their tokens from the cluster itself.
"""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class User:
    """A static user of the token file. Without groups and bindings it may do next to nothing."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def token_file_row(self) -> str:
        row = f"{self.token},{self.name},{self.name}"
        return f'{row},"{",".join(self.groups)}"\n' if self.groups else f"{row}\n"


def write_kubeconfig(path: Path, *, server: str, ca_path: Path, user: str, token: str) -> Path:
    """A kubeconfig with one context; JSON, which is YAML too."""
    ca_data = base64.b64encode(ca_path.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority-data": ca_data}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
        "current-context": "e2e",
    }
    path.write_text(json.dumps(config, indent=2))
    path.chmod(0o600)
    return path


def new_signing_key_pem() -> str:
    """A fresh P-256 private key for service account tokens, as a PEM block.

    Written by hand so that tests need neither openssl nor a crypto package: such a key is 32 random bytes
    in a fixed frame (RFC 5915), and the reader derives the public half.
    """
    # The top bit is cleared, which keeps the number below the order of the curve.
    number = secrets.randbits(255) | 1
    frame = b"\x30\x31\x02\x01\x01\x04\x20" + number.to_bytes(32, "big")
    curve = b"\xa0\x0a\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"
    body = base64.encodebytes(frame + curve).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{body}-----END EC PRIVATE KEY-----\n"
