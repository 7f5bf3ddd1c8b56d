"""One Kubernetes cluster without machines: the control plane's processes and ways to talk to them.

It starts from an empty folder and leaves no process behind: whatever goes wrong after the first start,
what was started is stopped, by the handle it was started with.
"""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import flags
from .audit import POLICY, Request, read_requests
from .binaries import Binaries
from .kubeconfig import User, new_signing_key_pem, write_kubeconfig
from .ports import free_ports
from .processes import Process, environment
from .rest import Rest
from .waiting import wait_until

# The first start on a busy machine of two cores was seen to take half a minute.
_START_TIMEOUT_S = 120.0
_NOT_REACHABLE = (OSError, http.client.HTTPException)

ADMIN = "admin"
SCHEDULER = "system:kube-scheduler"
CONTROLLER_MANAGER = "system:kube-controller-manager"
# Users without any permission that tests bind roles to; other names cost a restart of the API server.
STANDING_USERS = ("pykarpenter", "viewer", "developer")


class KubectlFailed(Exception):
    """kubectl exited with a code other than 0; `stderr` is what it said."""

    def __init__(self, arguments: Sequence[str], code: int, stdout: str, stderr: str) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr
        super().__init__(f"kubectl {' '.join(arguments)}: exit code {code}\n{stdout}{stderr}")


class Cluster:
    """etcd, kube-apiserver, kube-scheduler and kube-controller-manager on free loopback ports."""

    def __init__(self, folder: Path, binaries: Binaries, *, audit: bool = True) -> None:
        self.binaries = binaries
        self.layout = flags.Layout(folder)
        self.ports = flags.Ports(*free_ports(5))
        self.server = f"https://{flags.HOST}:{self.ports.apiserver}"
        self._audit = audit
        self._users = {
            user.name: user
            for user in (
                User(ADMIN, ("system:masters",)),
                User(SCHEDULER),
                # Its controllers share one user here, so that user needs what all of them need.
                User(CONTROLLER_MANAGER, ("system:masters",)),
                *(User(name) for name in STANDING_USERS),
            )
        }
        self._processes: dict[str, Process] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until all of it answers."""
        try:
            self._write_files()
            self._start("etcd", flags.etcd(self.binaries, self.layout, self.ports))
            self.start_apiserver()
            self._start_clients()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process that this object started; the state is thrown away, so at once."""
        for name in reversed(list(self._processes)):
            self._processes.pop(name).kill()

    def start_apiserver(self) -> None:
        """Start the API server, on the same port and with the same certificate as before, until ready."""
        self._start("kube-apiserver", flags.apiserver(self.binaries, self.layout, self.ports, audit=self._audit))
        self._wait_for("kube-apiserver", self._is_ready)

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """Stop the API server, in order or (`kill`) as a crash would; etcd keeps the state."""
        process = self._processes.pop("kube-apiserver")
        if kill:
            process.kill()
        else:
            process.terminate(timeout_s=30)

    def restart_apiserver(self, *, kill: bool = False) -> None:
        self.stop_apiserver(kill=kill)
        self.start_apiserver()

    def heal(self) -> None:
        """Undo what a test did to the processes: go on with paused ones, start a stopped API server."""
        for process in self._processes.values():
            process.resume()
        apiserver = self._processes.get("kube-apiserver")
        if apiserver is None or not apiserver.is_running:
            self.start_apiserver()

    def process(self, name: str) -> Process:
        """The running program of that name (`kube-scheduler`), to look at its log or to signal it."""
        return self._processes[name]

    @property
    def admin_kubeconfig(self) -> Path:
        return self.layout.kubeconfig(ADMIN)

    @property
    def admin(self) -> Rest:
        return self.rest(self._users[ADMIN].token)

    def rest(self, token: str) -> Rest:
        """Plain requests as whoever holds `token`."""
        tls = ssl.create_default_context(cafile=str(self.layout.ca))
        return Rest(flags.HOST, self.ports.apiserver, token=token, tls=tls)

    def kubeconfig_for(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig of a user without any permission but those a test binds to it or its groups."""
        known = self._users.get(user)
        if known is None or (groups and known.groups != groups):
            self._users[user] = User(user, groups)
            self._write_tokens()
            self.restart_apiserver()
        return self._write_kubeconfig(self._users[user])

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a fresh token of a service account, which is made when absent."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        if self.admin.find(f"{accounts}/{name}") is None:
            self.admin.create(accounts, {"metadata": {"name": name}})
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.admin.create(f"{accounts}/{name}/token", request)["status"]["token"]
        return self._write_kubeconfig(User(f"system:serviceaccount:{namespace}:{name}", token=token))

    def kubectl(self, *arguments: str, input: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl, by default as the admin; its standard output. `KubectlFailed` when it fails."""
        result = subprocess.run(
            [self.binaries.kubectl, *arguments],
            input=input,
            env=environment(
                KUBECONFIG=str(kubeconfig or self.admin_kubeconfig), KUBECACHEDIR=str(self.layout.root / "kubectl")
            ),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if result.returncode:
            raise KubectlFailed(arguments, result.returncode, result.stdout, result.stderr)
        return result.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        """`kubectl apply` of plain objects."""
        self.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def requests(self, *, user: str | None = None, verb: str | None = None) -> list[Request]:
        """The audit log so far, of one user and one verb where given."""
        return [
            request
            for request in read_requests(self.layout.audit_log)
            if user in (None, request.user) and verb in (None, request.verb)
        ]

    def compact_history(self) -> int:
        """Make etcd forget all older revisions, so that reading from them ends in 410; the revision left."""
        base = f"http://{flags.HOST}:{self.ports.etcd}/v3/kv"
        found = _post(f"{base}/range", {"key": "AA=="})
        revision = int(found["header"]["revision"])
        _post(f"{base}/compaction", {"revision": str(revision), "physical": True})
        return revision

    def _write_files(self) -> None:
        layout = self.layout
        layout.certificates.mkdir(parents=True)
        layout.signing_key.write_text(new_signing_key_pem())
        layout.audit_policy.write_text(json.dumps(POLICY))
        self._write_tokens()

    def _write_tokens(self) -> None:
        self.layout.tokens.write_text("".join(user.token_file_row() for user in self._users.values()))

    def _write_kubeconfig(self, user: User) -> Path:
        path = self.layout.kubeconfig(user.name)
        return write_kubeconfig(path, server=self.server, ca_path=self.layout.ca, user=user.name, token=user.token)

    def _start_clients(self) -> None:
        """The scheduler and the controllers, together: they do not wait for each other."""
        for user in self._users.values():
            self._write_kubeconfig(user)
        layout, ports = self.layout, self.ports
        layout.scheduler_config.write_text(json.dumps(flags.scheduler_config(layout.kubeconfig(SCHEDULER))))
        self._start("kube-scheduler", flags.scheduler(self.binaries, layout, ports))
        self._start(
            "kube-controller-manager",
            flags.controller_manager(self.binaries, layout, ports, layout.kubeconfig(CONTROLLER_MANAGER)),
        )
        self._wait_for("kube-scheduler", lambda: _is_healthy(ports.scheduler))
        self._wait_for("kube-controller-manager", lambda: _is_healthy(ports.controller_manager))

    def _start(self, name: str, command: list[str]) -> None:
        self._processes[name] = Process(
            name, command, log_path=self.layout.log(name), env=environment(), cwd=self.layout.root
        )

    def _wait_for(self, name: str, is_up: Callable[[], bool]) -> None:
        process = self._processes[name]

        def up_or_dead() -> bool:
            return not process.is_running or is_up()

        wait_until(
            up_or_dead,
            _START_TIMEOUT_S,
            what=lambda: f"{name} is up; its log ends with\n{process.log_tail()}\n",
            retry_on=_NOT_REACHABLE,
        )
        if not process.is_running:
            raise RuntimeError(f"{name} ended with {process.exit_code}; its log ends with\n{process.log_tail()}")

    def _is_ready(self) -> bool:
        return self.layout.ca.exists() and self.admin.request("GET", "/readyz")[0] == 200


def _is_healthy(port: int) -> bool:
    """Health of a program whose certificate is made up in memory at each start."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return Rest(flags.HOST, port, token="", tls=tls).request("GET", "/healthz")[0] == 200


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, json.dumps(body).encode()), timeout=30) as answer:
        decoded: dict[str, Any] = json.load(answer)
        return decoded
