"""The command lines of the control plane's programs.

Everything listens on 127.0.0.1 and keeps its files in the cluster's folder. Behaviour is left at the
defaults of Kubernetes, because the tests are about them; only durability and leader election, which a
throw-away cluster has no use for, are off, and the clients' rate limits are raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .binaries import Binaries

HOST = "127.0.0.1"
SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True)
class Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    scheduler: int
    controller_manager: int


@dataclass(frozen=True)
class Layout:
    """Where things are in a cluster's folder."""

    root: Path

    @property
    def certificates(self) -> Path:
        return self.root / "certificates"

    @property
    def ca(self) -> Path:
        """The API server's self-signed chain, which it writes at its first start."""
        return self.certificates / "apiserver.crt"

    @property
    def tokens(self) -> Path:
        return self.root / "tokens.csv"

    @property
    def signing_key(self) -> Path:
        return self.root / "service-accounts.key"

    @property
    def audit_policy(self) -> Path:
        return self.root / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        return self.root / "audit.log"

    @property
    def scheduler_config(self) -> Path:
        return self.root / "scheduler.json"

    def kubeconfig(self, user: str) -> Path:
        return self.root / f"{user.replace(':', '-')}.kubeconfig"

    def log(self, program: str) -> Path:
        return self.root / "logs" / f"{program}.log"


def etcd(binaries: Binaries, layout: Layout, ports: Ports) -> list[str]:
    client, peer = f"http://{HOST}:{ports.etcd}", f"http://{HOST}:{ports.etcd_peer}"
    return [
        str(binaries.etcd),
        f"--data-dir={layout.root / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(binaries: Binaries, layout: Layout, ports: Ports, *, audit: bool) -> list[str]:
    command = [
        str(binaries.kube_apiserver),
        f"--etcd-servers=http://{HOST}:{ports.etcd}",
        f"--bind-address={HOST}",
        f"--secure-port={ports.apiserver}",
        f"--cert-dir={layout.certificates}",
        f"--service-account-key-file={layout.signing_key}",
        f"--service-account-signing-key-file={layout.signing_key}",
        f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        # Pods get no service account token: nothing runs in them that could use it.
        "--disable-admission-plugins=ServiceAccount",
        # Without it an orderly stop waits a minute for watches that never end by themselves.
        "--shutdown-watch-termination-grace-period=1s",
    ]
    if audit:
        command += [f"--audit-policy-file={layout.audit_policy}", f"--audit-log-path={layout.audit_log}"]
    return command


def scheduler(binaries: Binaries, layout: Layout, ports: Ports) -> list[str]:
    return [
        str(binaries.kube_scheduler),
        f"--config={layout.scheduler_config}",
        f"--bind-address={HOST}",
        f"--secure-port={ports.scheduler}",
    ]


def scheduler_config(kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
    }


def controller_manager(binaries: Binaries, layout: Layout, ports: Ports, kubeconfig: Path) -> list[str]:
    return [
        str(binaries.kube_controller_manager),
        f"--kubeconfig={kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={ports.controller_manager}",
        "--controllers=*,-nodeipam",
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        f"--service-account-private-key-file={layout.signing_key}",
        f"--root-ca-file={layout.ca}",
    ]
