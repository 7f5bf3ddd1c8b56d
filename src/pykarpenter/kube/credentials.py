"""Who we are to an API server: tokens, token files that rotate, and commands that fetch credentials.

Credentials are kept in memory only and never appear in messages. One refresh runs at a time; a credential that the
server refused is fetched anew once.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from pykarpenter.api.timestamps import parse_timestamp
from pykarpenter.runtime.clock import Clock

# Projected tokens rotate before they expire; once a minute is what other clients do.
_TOKEN_FILE_AGE_S = 60.0
# Fetched credentials are replaced this long before they expire.
_EXPIRY_MARGIN_S = 60.0
_EXEC_TIMEOUT_S = 60.0


class CredentialError(Exception):
    """No credential could be had; says which source failed and what to do, never what it contained."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """PEM texts of a certificate and its key."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """What one request carries."""

    token: str = field(default="", repr=False)
    certificate: ClientCertificate | None = None


NOBODY = Identity()


class Credentials(Protocol):
    async def current(self) -> Identity:
        """The identity to use now; raises CredentialError."""
        ...

    def refused(self, identity: Identity) -> None:
        """The server answered 401 to it: do not hand it out again if another can be had."""
        ...


class Static:
    """A fixed identity: a token or certificate from a kubeconfig, or none."""

    def __init__(self, identity: Identity = NOBODY) -> None:
        self._identity = identity

    async def current(self) -> Identity:
        return self._identity

    def refused(self, identity: Identity) -> None:
        pass


class TokenFile:
    """A token in a file that somebody rotates; read anew every minute and after a refusal."""

    def __init__(self, path: Path, clock: Clock, certificate: ClientCertificate | None = None) -> None:
        self._path = path
        self._clock = clock
        self._certificate = certificate
        self._identity: Identity | None = None
        self._read_at = 0.0

    async def current(self) -> Identity:
        now = self._clock.monotonic()
        if self._identity is not None and now - self._read_at < _TOKEN_FILE_AGE_S:
            return self._identity
        try:
            token = self._path.read_text().strip()
        except OSError as error:
            if self._identity is not None:
                # In the middle of a rotation the file may be missing; the old token is still good for a while.
                return self._identity
            raise CredentialError(f"token file {self._path}: {error.strerror}; mount it or fix the path") from error
        if not token:
            raise CredentialError(f"token file {self._path} is empty")
        self._identity, self._read_at = Identity(token, self._certificate), now
        return self._identity

    def refused(self, identity: Identity) -> None:
        self._read_at = float("-inf")


class ExecSpec(msgspec.Struct, rename="camel", kw_only=True):
    """The `exec` block of a kubeconfig user."""

    api_version: str = "client.authentication.k8s.io/v1"
    command: str = ""
    args: list[str] = []
    env: list[dict[str, str]] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _ExecStatus(msgspec.Struct, rename="camel", kw_only=True):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel", kw_only=True):
    api_version: str = ""
    kind: str = ""
    status: _ExecStatus | None = None


class ExecCommand:
    """Credentials from a command, kept until they expire or are refused."""

    def __init__(
        self,
        spec: ExecSpec,
        clock: Clock,
        *,
        folder: Path,
        cluster: Mapping[str, object] | None = None,
        timeout_s: float = _EXEC_TIMEOUT_S,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._folder = folder
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._identity: Identity | None = None
        self._expires_at: float | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> Identity:
        async with self._lock:
            if self._identity is None or self._stale():
                self._identity = await self._fetch()
            return self._identity

    def refused(self, identity: Identity) -> None:
        # Several requests may be refused at once; only the first throws away the credential they all used.
        if identity is self._identity:
            self._identity = None

    def _stale(self) -> bool:
        # The expiry is a time of day that the issuer wrote, so it is compared with ours.
        return self._expires_at is not None and self._clock.now() >= self._expires_at - _EXPIRY_MARGIN_S

    async def _fetch(self) -> Identity:
        output = await self._run()
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise self._failure("printed no ExecCredential") from error
        status = credential.status
        if status is None or not (status.token or status.client_certificate_data):
            raise self._failure("gave neither a token nor a certificate")
        if credential.api_version != self._spec.api_version:
            raise self._failure(f"answered with {credential.api_version}, expected {self._spec.api_version}")
        self._expires_at = parse_timestamp(status.expiration_timestamp) if status.expiration_timestamp else None
        certificate = None
        if status.client_certificate_data:
            certificate = ClientCertificate(status.client_certificate_data, status.client_key_data)
        return Identity(status.token, certificate)

    async def _run(self) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                self._command(),
                *self._spec.args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._environment(),
            )
        except OSError as error:
            raise self._failure(f"did not start: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._timeout_s):
                output, _ = await process.communicate()
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise self._failure(f"did not answer within {self._timeout_s:g} s") from error
        if process.returncode != 0:
            raise self._failure(f"exited with {process.returncode}")
        return output

    def _command(self) -> str:
        command = self._spec.command
        # A path is relative to the kubeconfig it stands in; a bare name is looked up in PATH.
        return str(self._folder / command) if os.sep in command else command

    def _environment(self) -> dict[str, str]:
        spec: dict[str, object] = {"interactive": False}
        if self._spec.provide_cluster_info and self._cluster is not None:
            spec["cluster"] = self._cluster
        info = {"apiVersion": self._spec.api_version, "kind": "ExecCredential", "spec": spec}
        own = {item["name"]: item.get("value", "") for item in self._spec.env or []}
        return {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _failure(self, what: str) -> CredentialError:
        hint = f"; {self._spec.install_hint.strip()}" if self._spec.install_hint else ""
        return CredentialError(f"credential command {self._spec.command!r} {what}{hint}")
