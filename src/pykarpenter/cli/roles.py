"""Permissions as Kubernetes roles: rules in a stable order, one per resource, and the objects that bind them.

Cluster-wide permissions make a ClusterRole, those of a namespace a Role there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pykarpenter.cloud.permissions import OWN_NAMESPACE, Permission

Manifest = dict[str, Any]
_API = "rbac.authorization.k8s.io"
_VERB_ORDER = ("get", "list", "watch", "create", "update", "patch", "delete")


def rules(permissions: Iterable[Permission]) -> list[Manifest]:
    """One rule per resource and names, in the order they are first asked for; verbs of repeated ones are joined."""
    joined: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for item in permissions:
        joined.setdefault((item.group, item.resource, item.names), set()).update(item.verbs)
    found: list[Manifest] = []
    for (group, resource, names), verbs in joined.items():
        rule: Manifest = {"apiGroups": [group], "resources": [resource]}
        if names:
            rule["resourceNames"] = list(names)
        rule["verbs"] = [verb for verb in _VERB_ORDER if verb in verbs]
        found.append(rule)
    return found


def namespaces(permissions: Iterable[Permission]) -> list[str]:
    """Where roles are needed, in order; the empty one is the whole cluster."""
    return list(dict.fromkeys(item.namespace for item in permissions))


def manifests(
    permissions: Sequence[Permission], name: str, namespace: str, service_account: str, lease_namespace: str = ""
) -> list[Manifest]:
    """Roles and bindings that give a service account of `namespace` these permissions and nothing else.

    What is asked of the program's own namespace goes to `lease_namespace`, if the Lease lives elsewhere.
    """
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    made: list[Manifest] = []
    for place in namespaces(permissions):
        where = (lease_namespace or namespace) if place == OWN_NAMESPACE else place
        metadata = {"name": name, **({"namespace": where} if where else {})}
        kind = "Role" if where else "ClusterRole"
        found = rules(item for item in permissions if item.namespace == place)
        made.append({"apiVersion": f"{_API}/v1", "kind": kind, "metadata": metadata, "rules": found})
        reference = {"apiGroup": _API, "kind": kind, "name": name}
        binding = {"apiVersion": f"{_API}/v1", "kind": f"{kind}Binding", "metadata": metadata}
        made.append({**binding, "roleRef": reference, "subjects": [subject]})
    return made
