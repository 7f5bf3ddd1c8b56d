"""What the server says about itself: kinds, schemas, columns of custom kinds."""

from pykarpenter.api.crds import crds
from pykarpenter.sim.server import json_path
from pykarpenter.sim.server.durations import human_duration

from .conftest import Served

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


def install(served: Served) -> None:
    for manifest in crds():
        served.store.create(served.world.kind("customresourcedefinitions"), manifest)


async def test_kinds_are_found_the_old_way_and_the_new_way(served: Served) -> None:
    """Old clients walk the groups, kubectl reads everything at once."""
    install(served)
    groups = [group["name"] for group in (await served.get("/apis"))["groups"]]
    assert "karpenter.sh" in groups and "apps" in groups
    listed = (await served.get("/apis/karpenter.sh/v1"))["resources"]
    assert [item["name"] for item in listed if "/" not in item["name"]] == ["nodeclaims", "nodepools"]
    items = (await served.get("/apis", Accept=AGGREGATED))["items"]
    pools = next(
        resource
        for group in items
        if group["metadata"]["name"] == "karpenter.sh"
        for version in group["versions"]
        for resource in version["resources"]
        if resource["resource"] == "nodepools"
    )
    assert [below["subresource"] for below in pools["subresources"]] == ["status", "scale"]
    assert (await served.get("/api"))["versions"] == ["v1"]


async def test_schemas_are_served_for_explain_and_validation(served: Served) -> None:
    """Both generations of OpenAPI, custom kinds included."""
    install(served)
    index = (await served.get("/openapi/v3"))["paths"]
    document = await served.get(index["apis/karpenter.sh/v1"]["serverRelativeURL"])
    schemas = document["components"]["schemas"]
    spec = schemas["sh.karpenter.v1.NodePool"]["properties"]["spec"]
    assert "disruption" in spec["properties"]
    patch = document["paths"]["/apis/karpenter.sh/v1/nodepools/{name}"]["patch"]
    assert {"dryRun", "fieldValidation"} <= {parameter["name"] for parameter in patch["parameters"]}
    assert "#/components/schemas/" in str(schemas["sh.karpenter.v1.NodePool"]["properties"]["metadata"])
    second = await served.get("/openapi/v2")
    assert "io.k8s.api.core.v1.Pod" in second["definitions"] and second["swagger"] == "2.0"


async def test_a_changed_definition_changes_its_hash(served: Served) -> None:
    """Clients keep what they have read until the hash differs."""
    install(served)
    before = (await served.get("/openapi/v3"))["paths"]["apis/karpenter.sh/v1"]
    served.world.delete("customresourcedefinitions", "nodeclaims.karpenter.sh")
    assert (await served.get("/openapi/v3"))["paths"]["apis/karpenter.sh/v1"] != before


async def test_custom_kinds_bring_their_columns(served: Served) -> None:
    """additionalPrinterColumns, with filters and dates."""
    install(served)
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    requirement = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
    template = {"spec": {"nodeClassRef": reference, "requirements": [requirement]}}
    served.world.create("nodepools", "general", spec={"template": template})
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }
    served.world.patch("nodepools", "general", {"status": {"conditions": [condition]}}, subresource="status")
    served.world.clock.time += 7200
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = await served.get("/apis/karpenter.sh/v1/nodepools", Accept=accept)
    names = [column["name"] for column in table["columnDefinitions"]]
    row = dict(zip(names, table["rows"][0]["cells"], strict=True))
    assert (row["Name"], row["NodeClass"], row["Ready"], row["Age"]) == ("general", "default", "True", "120m")


def test_json_paths_of_columns() -> None:
    """The forms that definitions use."""
    obj = {"a": {"b.c/d": 1, "list": [{"t": "x", "v": 1}, {"t": "y", "v": 2}]}}
    assert json_path.find(r".a.b\.c/d", obj) == [1]
    assert json_path.find(".a.list[*].v", obj) == [1, 2]
    assert json_path.find('.a.list[?(@.t=="y")].v', obj) == [2]
    assert json_path.find(".a.list[-1].v", obj) == [2]
    assert json_path.find("{.a['b.c/d']}", obj) == [1]
    assert json_path.find(".a.none.deeper", obj) == []


def test_ages_read_as_kubectls() -> None:
    """Two units at most."""
    ages = {
        5: "5s",
        130: "2m10s",
        120: "2m",
        3600 * 2: "120m",
        3600 * 5 + 60: "5h1m",
        86400 * 3: "3d",
        86400 * 800: "2y70d",
    }
    assert {seconds: human_duration(seconds) for seconds in ages} == ages
