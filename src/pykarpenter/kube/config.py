"""Which API server to talk to, and as whom: from a kubeconfig, several of them, or the pod we run in.

The order is that of other controllers: an explicit file, `KUBECONFIG`, the cluster around us, `~/.kube/config`.
Nothing here connects; errors name the file, the field and the remedy.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from pykarpenter.kube.credentials import (
    ClientCertificate,
    Credentials,
    ExecCommand,
    ExecSpec,
    Identity,
    Static,
    TokenFile,
)
from pykarpenter.runtime.clock import Clock

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(Exception):
    """No usable configuration; the message says where and why."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Everything a client needs to reach one cluster."""

    server: str
    credentials: Credentials = field(default_factory=Static, repr=False)
    ca: str = field(default="", repr=False)
    verify: bool = True
    tls_server_name: str = ""
    proxy_url: str = ""
    namespace: str = "default"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def ssl_context(self, certificate: ClientCertificate | None = None) -> ssl.SSLContext | None:
        """TLS for this cluster, with a client certificate if there is one; None for a plain `http` server."""
        if not self.server.startswith("https://"):
            return None
        context = ssl.create_default_context(cadata=self.ca or None)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            _load_certificate(context, certificate)
        return context


def load_config(
    clock: Clock, *, kubeconfig: str = "", context: str = "", environ: Mapping[str, str] | None = None
) -> ClusterConfig:
    """The configuration to use here; raises ConfigError when there is none or it is broken."""
    env = os.environ if environ is None else environ
    if kubeconfig:
        return from_kubeconfig([Path(kubeconfig)], clock, context)
    if env.get("KUBECONFIG"):
        paths = [Path(part) for part in env["KUBECONFIG"].split(os.pathsep) if part]
        return from_kubeconfig(paths, clock, context)
    if env.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(clock, env)
    home = Path(env.get("HOME") or Path.home()) / ".kube" / "config"
    if home.exists():
        return from_kubeconfig([home], clock, context)
    raise ConfigError(
        "no cluster to talk to: set KUBECONFIG, or run inside a cluster with a service account "
        f"({home} does not exist and KUBERNETES_SERVICE_HOST is not set)"
    )


def in_cluster(clock: Clock, environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> ClusterConfig:
    """The configuration of a pod: its service account's token, which rotates, and the cluster's CA."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
    try:
        ca = (folder / "ca.crt").read_text()
    except OSError as error:
        raise ConfigError(
            f"{folder / 'ca.crt'}: {error.strerror}; the pod needs automountServiceAccountToken"
        ) from error
    namespace = folder / "namespace"
    return ClusterConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        credentials=TokenFile(folder / "token", clock),
        ca=ca,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


class _Block(msgspec.Struct, rename="kebab", kw_only=True):
    """A named block of a kubeconfig."""


class _Cluster(_Block):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(_Block):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: ExecSpec | None = None
    auth_provider: dict[str, Any] | None = None
    as_user: str = msgspec.field(name="as", default="")
    as_groups: list[str] = []


class _Context(_Block):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


B = TypeVar("B", bound=_Block)


@dataclass(slots=True)
class _Merged:
    """Named blocks of all files; the first file that has a name wins, as in kubectl."""

    current: str = ""
    blocks: dict[tuple[str, str], tuple[Any, Path]] = field(default_factory=dict)

    def block(self, section: str, name: str, kind: type[B], wanted_by: str) -> tuple[B, Path]:
        found = self.blocks.get((section, name))
        if found is None:
            known = ", ".join(other for where, other in self.blocks if where == section) or "none"
            raise ConfigError(f"kubeconfig: {section} has no {name!r}, wanted by {wanted_by}; it has: {known}")
        raw, path = found
        try:
            return msgspec.convert(raw or {}, kind, strict=False), path.parent
        except msgspec.ValidationError as error:
            raise ConfigError(f"{path}: {section} {name!r}: {error}") from error


_ENTRY = {"clusters": "cluster", "users": "user", "contexts": "context"}


def from_kubeconfig(paths: list[Path], clock: Clock, context: str = "") -> ClusterConfig:
    """The chosen, or else the current, context of one kubeconfig or several merged ones."""
    merged = _merge(paths)
    name = context or merged.current
    if not name:
        raise ConfigError(f"{_listed(paths)}: current-context is not set; set it or name a context")
    chosen, _ = merged.block("contexts", name, _Context, "the chosen context")
    cluster, cluster_folder = merged.block("clusters", chosen.cluster, _Cluster, f"context {name!r}")
    if not cluster.server:
        raise ConfigError(f"{_listed(paths)}: cluster {chosen.cluster!r} has no server")
    user, user_folder = _User(), cluster_folder
    if chosen.user:
        user, user_folder = merged.block("users", chosen.user, _User, f"context {name!r}")
    ca = _pem(
        cluster.certificate_authority_data, cluster.certificate_authority, cluster_folder, "certificate-authority"
    )
    return ClusterConfig(
        server=cluster.server.rstrip("/"),
        credentials=_credentials(user, user_folder, cluster, ca, clock),
        ca=ca,
        verify=not cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy_url=cluster.proxy_url,
        namespace=chosen.namespace or "default",
        headers=_headers(user),
    )


def _merge(paths: list[Path]) -> _Merged:
    merged = _Merged()
    seen = 0
    for path in paths:
        try:
            text = path.read_text()
        except FileNotFoundError:
            # kubectl skips missing files of a list, too.
            continue
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        seen += 1
        try:
            # The base loader reads every scalar as text: no surprise dates or numbers in names and tokens.
            document = _without_nulls(yaml.load(text, Loader=yaml.BaseLoader) or {})  # noqa: S506 - plain text only
        except yaml.YAMLError as error:
            raise ConfigError(f"{path}: not YAML: {error}") from error
        if not isinstance(document, dict):
            raise ConfigError(f"{path}: not a kubeconfig: expected a mapping")
        merged.current = merged.current or str(document.get("current-context") or "")
        for section, entry in _ENTRY.items():
            for item in document.get(section) or []:
                merged.blocks.setdefault((section, str(item.get("name", ""))), (item.get(entry), path))
    if not seen:
        raise ConfigError(f"kubeconfig {_listed(paths)} does not exist")
    return merged


def _credentials(user: _User, folder: Path, cluster: _Cluster, ca: str, clock: Clock) -> Credentials:
    certificate = None
    if user.client_certificate or user.client_certificate_data:
        certificate = ClientCertificate(
            _pem(user.client_certificate_data, user.client_certificate, folder, "client-certificate"),
            _pem(user.client_key_data, user.client_key, folder, "client-key"),
        )
    if user.auth_provider is not None:
        raise ConfigError(
            f"kubeconfig: auth-provider {user.auth_provider.get('name', '')!r} is no longer supported by Kubernetes; "
            "use an exec credential plug-in"
        )
    if user.exec is not None:
        if not user.exec.command:
            raise ConfigError("kubeconfig: exec.command is empty; name the program that prints the credential")
        info = {
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": base64.b64encode(ca.encode()).decode(),
        }
        return ExecCommand(
            user.exec, clock, folder=folder, cluster={key: value for key, value in info.items() if value}
        )
    if user.token_file:
        return TokenFile(folder / user.token_file, clock, certificate)
    return Static(Identity(user.token, certificate))


def _headers(user: _User) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    if user.username and not user.token:
        pair = f"{user.username}:{user.password}".encode()
        headers.append(("Authorization", f"Basic {base64.b64encode(pair).decode()}"))
    if user.as_user:
        headers.append(("Impersonate-User", user.as_user))
    headers.extend(("Impersonate-Group", group) for group in user.as_groups)
    return tuple(headers)


def _without_nulls(value: Any) -> Any:
    """The base loader reads nulls as text; a field that is null is a field that is not there."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item not in ("", "null", "~")}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _pem(data: str, path: str, folder: Path, what: str) -> str:
    """The PEM text of inline data, which wins, or of a file."""
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"kubeconfig: {what}-data is not base64 of PEM text") from error
    if not path:
        return ""
    try:
        return (folder / path).read_text()
    except OSError as error:
        raise ConfigError(f"kubeconfig: {what} {folder / path}: {error.strerror}") from error


def _load_certificate(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    # The ssl module reads client certificates from files only; this one is private and gone at once.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{certificate.certificate.rstrip()}\n{certificate.key.rstrip()}\n")
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError as error:
            raise ConfigError(
                f"client certificate: {error.reason or 'unreadable'}; check certificate and key"
            ) from error


def _listed(paths: list[Path]) -> str:
    return ", ".join(str(path) for path in paths)
