"""The rights that the KWOK provider needs beside the controllers' own: its class, Nodes, and what kubelets write."""

from __future__ import annotations

from pykarpenter.cloud.permissions import READ, Permission, definitions

PROVIDER: tuple[Permission, ...] = (
    Permission("karpenter.kwok.sh", "kwoknodeclasses", READ),
    definitions("kwoknodeclasses.karpenter.kwok.sh"),
    Permission("", "nodes", ("create",)),
    Permission("", "nodes/status", ("patch",)),
)

# Only when this process plays the kubelets, or in `pykarpenter kubelets`.
KUBELETS: tuple[Permission, ...] = (
    Permission("", "pods/status", ("patch",)),
    Permission("coordination.k8s.io", "leases", ("create", "patch"), namespace="kube-node-lease"),
)

# What drivers on the nodes would publish; kubelets do it for catalogues with volume limits and devices.
DRIVERS: tuple[Permission, ...] = (
    Permission("storage.k8s.io", "csinodes", ("create",)),
    Permission("resource.k8s.io", "resourceslices", ("create",)),
)
