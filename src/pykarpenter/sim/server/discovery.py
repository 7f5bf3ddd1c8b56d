"""What the server tells clients about the kinds it serves: group lists, resource lists, aggregated discovery."""

from __future__ import annotations

from typing import Any

from pykarpenter.sim.store import Resource, Store

Json = dict[str, Any]

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_POD_SUBRESOURCES = (
    ("binding", {"group": "", "version": "v1", "kind": "Binding"}, ["create"]),
    ("eviction", {"group": "policy", "version": "v1", "kind": "Eviction"}, ["create"]),
    ("log", {"group": "", "version": "v1", "kind": "Pod"}, ["get"]),
    ("resize", {"group": "", "version": "v1", "kind": "Pod"}, ["get", "patch", "update"]),
)


def subresources(resource: Resource) -> list[tuple[str, Json, list[str]]]:
    """Name, kind and verbs of each subresource of a kind."""
    own = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    found: list[tuple[str, Json, list[str]]] = []
    if resource.has_status:
        found.append(("status", own, ["get", "patch", "update"]))
    if resource.scale is not None:
        found.append(("scale", _SCALE, ["get", "patch", "update"]))
    if resource.plural == "pods" and not resource.group:
        found.extend((name, dict(kind), list(verbs)) for name, kind, verbs in _POD_SUBRESOURCES)
    return found


def groups(store: Store) -> dict[str, dict[str, list[Resource]]]:
    """Resources by group and version, in a stable order, the core group first."""
    found: dict[str, dict[str, list[Resource]]] = {}
    for resource in sorted(store.resources(), key=lambda item: (item.group, item.version, item.plural)):
        found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return found


def core_versions(address: str) -> Json:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(store: Store) -> Json:
    found = [_group(name, list(versions)) for name, versions in groups(store).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def one_group(store: Store, name: str) -> Json | None:
    versions = groups(store).get(name)
    if not name or versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, list(versions))}


def resource_list(store: Store, group: str, version: str) -> Json | None:
    """The kinds of one group version, or None when it is not served."""
    resources = groups(store).get(group, {}).get(version)
    if resources is None:
        return None
    listed: list[Json] = []
    for resource in resources:
        listed.append(_listed(resource))
        for name, kind, verbs in subresources(resource):
            entry: Json = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind["kind"],
                "verbs": verbs,
            }
            if (kind["group"], kind["version"]) != (group, version):
                entry |= {"group": kind["group"], "version": kind["version"]}
            listed.append(entry)
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _listed(resource: Resource) -> Json:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def aggregated(store: Store, *, core: bool) -> Json:
    """Everything at once, for the core group or for all others."""
    items = [
        {
            "metadata": {"name": name} if name else {"creationTimestamp": None},
            "versions": [
                {
                    "version": version,
                    "freshness": "Current",
                    "resources": [_aggregated_resource(resource) for resource in resources],
                }
                for version, resources in versions.items()
            ],
        }
        for name, versions in groups(store).items()
        if core == (name == "")
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_resource(resource: Resource) -> Json:
    entry: Json = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    below = [
        {"subresource": name, "responseKind": kind, "verbs": verbs} for name, kind, verbs in subresources(resource)
    ]
    if below:
        entry["subresources"] = below
    return entry
