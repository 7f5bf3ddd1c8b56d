"""A real Kubernetes control plane on loopback, for tests.

`Cluster` is the door: it starts etcd, kube-apiserver, kube-scheduler and kube-controller-manager, hands
out kubeconfigs and stops exactly what it started. `python -m tests.e2e.cluster` builds the programs or
keeps one cluster up for hand work.
"""

from .binaries import Binaries, ensure_binaries
from .controlplane import Cluster
from .kubeconfig import User
from .processes import Process
from .program import Program, ProgramRunner
from .rest import ApiError, Rest
from .waiting import wait_until

__all__ = [
    "ApiError",
    "Binaries",
    "Cluster",
    "Process",
    "Program",
    "ProgramRunner",
    "Rest",
    "User",
    "ensure_binaries",
    "wait_until",
]
