"""A real API server accepts the CRDs and enforces every rule of them, naming the field that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykarpenter.api import kinds
from pykarpenter.api.crds import crds as manifests
from tests.crds.bad_pools import REFUSED, bad_pool
from tests.crds.cases import BASES, Case, all_cases, edited

from .cluster import Cluster
from .cluster.rest import MERGE_PATCH, Rest

KINDS = {kind.plural: kind for kind in kinds.ALL}
CASES = all_cases(manifests())


def refused_fields(answer: tuple[int, str]) -> list[str]:
    """The fields that the server complains about; none when it accepts."""
    code, body = answer
    status = json.loads(body)
    if code < 400:
        return []
    assert code == 422, body
    return [cause["field"] for cause in status["details"]["causes"]]


def send(admin: Rest, case: Case, value: Any) -> tuple[int, str]:
    kind = KINDS[case.plural]
    namespace = "default" if kind.namespaced else ""
    body = edited(case.plural, case.path, value)
    if case.how == "create":
        body["metadata"]["name"] = "another"
        return admin.request("POST", f"{kind.path(namespace)}?dryRun=All", body)
    patch = {"status": body["status"]} if case.how == "status" else {"spec": body["spec"]}
    sub = "status" if case.how == "status" else ""
    path = f"{kind.path(namespace, 'case', sub)}?dryRun=All"
    return admin.request("PATCH", path, patch, content_type=MERGE_PATCH)


@pytest.mark.promise("API-1.1.1", "API-1.1.10", "API-1.2.1", "API-1.2.2", "API-1.5.1", "API-1.6.1", "API-1.7.2")
def test_api_server_holds_every_rule(cluster: Cluster, crds: None) -> None:
    """Rules that only our own store enforced would let bad objects in where it matters."""
    wrong: list[str] = []
    for plural, base in BASES.items():
        kind = KINDS[plural]
        cluster.admin.create(kind.path("default" if kind.namespaced else ""), base())
    for case in CASES:
        if fields := refused_fields(send(cluster.admin, case, case.accepted)):
            wrong.append(f"{case}: {case.accepted!r} is refused for {fields}")
        fields = refused_fields(send(cluster.admin, case, case.refused))
        if case.field not in fields:
            wrong.append(f"{case}: {case.refused!r} is refused for {fields}, not {case.field}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.promise("API-1.1.2", "API-1.7.1")
def test_api_server_fills_in_the_defaults(cluster: Cluster, crds: None) -> None:
    """The controller reads what the server stored, not what the user wrote."""
    pool = cluster.admin.create("/apis/karpenter.sh/v1/nodepools", BASES["nodepools"]())
    assert pool["spec"]["template"]["spec"]["expireAfter"] == "720h"
    assert pool["spec"]["disruption"] == {
        "budgets": [{"nodes": "10%"}],
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
    }
    node_class = cluster.admin.create("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", BASES["kwoknodeclasses"]())
    assert [(c["type"], c["status"], c["reason"]) for c in node_class["status"]["conditions"]] == [
        ("Ready", "True", "Ready")
    ]


def test_b2_b3_b5_b7_b10_b12_bad_pools_are_refused_at_admission(cluster: Cluster, crds: None) -> None:
    """The same objects and the same field paths as on the in-process store."""
    path = KINDS["nodepools"].path()
    named = [(row, refused_fields(cluster.admin.request("POST", path, bad_pool(fields)))) for row, fields, _ in REFUSED]
    assert [row for (row, fields), (_, _, field) in zip(named, REFUSED, strict=True) if field not in fields] == []
