"""Objects over HTTPS: verbs, errors, watches, tables."""

import asyncio
import json
import stat
from typing import Any

import aiohttp

from ..store.world import pod_spec, workload_spec
from .conftest import Served

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def test_an_unknown_token_is_refused(served: Served) -> None:
    """The server is open to whoever can read the kubeconfig, and to nobody else."""
    status, body = await served.call("GET", "/api/v1/nodes", Authorization="Bearer wrong")
    assert (status, body["reason"]) == (401, "Unauthorized")
    assert (await served.call("GET", "/api/v1/nodes", Authorization=""))[0] == 401
    assert (await served.call("GET", "/readyz", Authorization="Bearer wrong"))[0] == 401
    assert await served.call("GET", "/readyz", Authorization="") == (200, "ok")


async def test_the_kubeconfig_is_private(served: Served) -> None:
    """It holds the token."""
    assert stat.S_IMODE(served.kubeconfig.stat().st_mode) == 0o600
    assert served.url.startswith("https://127.0.0.1:")


async def test_objects_are_created_read_changed_and_deleted(served: Served) -> None:
    """The everyday verbs with their codes."""
    status, made = await served.call("POST", CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}})
    assert status == 201 and made["metadata"]["uid"]
    assert (await served.get(f"{CONFIG_MAPS}/c"))["data"] == {"a": "1"}
    status, changed = await served.call("PUT", f"{CONFIG_MAPS}/c", {**made, "data": {"a": "2"}})
    assert (status, changed["data"]) == (200, {"a": "2"})
    status, error = await served.call("PUT", f"{CONFIG_MAPS}/c", {**made, "data": {"a": "3"}})
    assert (status, error["reason"], error["details"]["name"]) == (409, "Conflict", "c")
    status, done = await served.call("DELETE", f"{CONFIG_MAPS}/c")
    assert (status, done["status"], done["details"]["uid"]) == (200, "Success", made["metadata"]["uid"])
    status, error = await served.call("GET", f"{CONFIG_MAPS}/c")
    assert (status, error["kind"], error["message"]) == (404, "Status", 'configmaps "c" not found')


async def test_each_patch_type_has_its_content_type(served: Served) -> None:
    """Merge, JSON, strategic and apply; anything else is 415."""
    served.world.create("configmaps", "c", data={"a": "1"})
    path = f"{CONFIG_MAPS}/c"
    for content_type, body, code in (
        ("application/merge-patch+json", {"data": {"b": "2"}}, 200),
        ("application/strategic-merge-patch+json", {"data": {"c": "3"}}, 200),
        ("application/json-patch+json", [{"op": "add", "path": "/data/d", "value": "4"}], 200),
        ("text/plain", {"data": {}}, 415),
    ):
        assert (await served.call("PATCH", path, body, Content_Type=content_type))[0] == code
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"e": "5"}}
    status, body = await served.call(
        "PATCH", f"{path}?fieldManager=me", applied, Content_Type="application/apply-patch+yaml"
    )
    assert status == 200 and list(body["data"]) == ["a", "b", "c", "d", "e"]
    managers = [(entry["manager"], entry["operation"]) for entry in body["metadata"]["managedFields"]]
    assert managers == [("tester", "Update"), ("me", "Apply")]


async def test_broken_bodies_get_an_answer(served: Served) -> None:
    """Never an exception: the user reads what was wrong."""
    assert (await served.call("POST", CONFIG_MAPS, "text"))[0] == 400
    async with served.session.post(served.url + CONFIG_MAPS, data=b"{") as response:
        assert response.status == 400
        assert "not JSON" in (await response.json())["message"]
    assert (await served.call("POST", "/api/v1/namespaces/default/pods", {"spec": {"containers": 1}}))[0] == 400
    assert (await served.call("GET", f"{CONFIG_MAPS}?limit=many"))[0] == 400
    assert (await served.call("GET", "/apis/none.example.com/v1/things"))[0] == 404
    served.world.create("pods", "p", spec=pod_spec())
    status, error = await served.call("GET", "/api/v1/namespaces/default/pods/p/log")
    assert status == 400 and "there are no logs" in error["message"]
    assert (await served.call("DELETE", "/api/v1/namespaces/default/pods/p/status"))[0] == 405


async def test_unknown_fields_are_warned_about_or_refused(served: Served) -> None:
    """What kubectl relies on to find typing mistakes."""
    body = {"metadata": {"name": "web"}, "spec": workload_spec(replicaz=3)}
    path = "/apis/apps/v1/namespaces/default/deployments"
    status, error = await served.call("POST", f"{path}?fieldValidation=Strict", body)
    assert status == 400 and error["message"].endswith('strict decoding error: unknown field "spec.replicaz"')
    async with served.session.post(served.url + path, json=body) as response:
        assert response.status == 201
        assert response.headers["Warning"] == '299 - "unknown field \\"spec.replicaz\\""'


async def test_lists_come_in_pages(served: Served) -> None:
    """limit and continue, with what is left."""
    for name in "abc":
        served.world.create("nodes", name)
    first = await served.get("/api/v1/nodes?limit=2")
    assert (first["kind"], first["metadata"]["remainingItemCount"]) == ("NodeList", 1)
    token = first["metadata"]["continue"]
    second = await served.get(f"/api/v1/nodes?limit=2&continue={token}")
    assert [item["metadata"]["name"] for item in second["items"]] == ["c"]
    served.store.compact()
    served.world.create("nodes", "d")
    served.store.compact()
    status, error = await served.call("GET", f"/api/v1/nodes?limit=2&continue={token}")
    assert (status, error["reason"]) == (410, "Expired") and error["metadata"]["continue"]


async def read_events(response: aiohttp.ClientResponse, count: int) -> list[dict[str, Any]]:
    return [json.loads(await asyncio.wait_for(response.content.readline(), 5)) for _ in range(count)]


async def test_a_watch_streams_changes(served: Served) -> None:
    """One line per event, from the version asked for."""
    served.world.create("nodes", "a")
    query = f"watch=true&resourceVersion={served.store.rv}"
    async with served.session.get(f"{served.url}/api/v1/nodes?{query}") as response:
        served.world.create("nodes", "b")
        served.world.delete("nodes", "a")
        events = await read_events(response, 2)
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]


async def test_a_streaming_list_is_closed_by_its_bookmark(served: Served) -> None:
    """sendInitialEvents, as reflectors ask for it."""
    served.world.create("nodes", "a")
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with served.session.get(f"{served.url}/api/v1/nodes?{query}") as response:
        added, bookmark = await read_events(response, 2)
    assert added["object"]["metadata"]["name"] == "a"
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_from_a_forgotten_version_gets_410_in_the_stream(served: Served) -> None:
    """Clients look for an ERROR event, then list again."""
    served.world.create("nodes", "a")
    served.store.compact()
    async with served.session.get(f"{served.url}/api/v1/nodes?watch=1&resourceVersion=1") as response:
        (event,) = await read_events(response, 1)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_stopping_server_ends_its_watches(served: Served) -> None:
    """Otherwise stopping would take as long as the longest watch."""
    from pykarpenter.sim.server import ServedCluster

    other = ServedCluster(served.store, served.kubeconfig.with_name("other"), token="t")
    await other.start()
    connector = aiohttp.TCPConnector(ssl=False)
    headers = {"Authorization": "Bearer t"}
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.get(f"{other.url}/api/v1/nodes?watch=true") as response,
    ):
        await asyncio.wait_for(other.stop(), 5)
        assert await response.content.read() == b""


async def test_tables_have_kubectls_columns(served: Served) -> None:
    """Built-in kinds by their own columns; ages by the cluster's clock."""
    served.world.create("pods", "p", spec=pod_spec(nodeName="n"))
    served.world.clock.time += 300
    table = await served.get("/api/v1/namespaces/default/pods", Accept=TABLE)
    names = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert names == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:5] == ["p", "0/1", "Pending", "0", "5m"]
    assert table["rows"][0]["object"]["metadata"]["name"] == "p"


async def test_eviction_and_binding_have_their_doors(served: Served) -> None:
    """kubectl drain and schedulers."""
    served.world.create("pods", "p", spec=pod_spec(), metadata={"labels": {"app": "web"}})
    path = "/api/v1/namespaces/default/pods/p"
    assert (await served.call("POST", f"{path}/binding", {"target": {"name": "n"}}))[0] == 201
    status, error = await served.call("POST", f"{path}/binding", {"target": {"name": "n"}})
    assert (status, error["reason"]) == (409, "Conflict")
    assert (await served.call("POST", f"{path}/binding", {}))[0] == 400
    served.world.patch("pods", "p", {"status": {"phase": "Running"}}, subresource="status")
    selector = {"matchLabels": {"app": "web"}}
    served.world.create("poddisruptionbudgets", "b", spec={"selector": selector, "minAvailable": 1})
    status, error = await served.call("POST", f"{path}/eviction", {"kind": "Eviction", "apiVersion": "policy/v1"})
    assert (status, error["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")
    served.world.delete("poddisruptionbudgets", "b")
    assert (await served.call("POST", f"{path}/eviction", {"kind": "Eviction", "apiVersion": "policy/v1"}))[0] == 201


async def test_scale_is_a_small_object_of_its_own(served: Served) -> None:
    """Read and patched by autoscalers and kubectl scale."""
    served.world.create("deployments", "web", spec=workload_spec())
    path = "/apis/apps/v1/namespaces/default/deployments/web/scale"
    scale = await served.get(path)
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 1}, "app=web")
    patch = {"spec": {"replicas": 3}}
    status, body = await served.call("PATCH", path, patch, Content_Type="application/merge-patch+json")
    assert (status, body["kind"], body["spec"]["replicas"]) == (200, "Scale", 3)


async def test_dry_run_shows_what_would_be(served: Served) -> None:
    """kubectl diff."""
    served.world.create("configmaps", "c", data={"a": "1"})
    patch = {"data": {"a": "2"}}
    path = f"{CONFIG_MAPS}/c"
    status, body = await served.call("PATCH", f"{path}?dryRun=All", patch, Content_Type="application/merge-patch+json")
    assert (status, body["data"]) == (200, {"a": "2"})
    assert (await served.get(path))["data"] == {"a": "1"}
    assert (await served.call("DELETE", f"{path}?dryRun=Some"))[0] == 422


async def test_whoever_has_the_token_may_do_everything(served: Served) -> None:
    """`kubectl auth can-i` and `auth whoami` ask so."""
    asked = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    status, body = await served.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
    assert (status, body["status"]["allowed"], body["spec"]) == (201, True, asked["spec"])
    rules = (await served.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {}))[1]
    assert rules["status"]["resourceRules"][0]["verbs"] == ["*"]
    who = (await served.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}))[1]
    assert who["status"]["userInfo"]["username"] == "pykarpenter"
    assert (await served.call("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"))[0] == 404


async def test_what_needs_containers_says_that_there_are_none(served: Served) -> None:
    """logs, exec, attach, port-forward and debug name the reason instead of an unknown path."""
    path = "/api/v1/namespaces/default/pods"
    assert (await served.call("POST", path, {"metadata": {"name": "p"}, "spec": pod_spec()}))[0] == 201
    for below in ("log", "exec", "attach", "portforward", "ephemeralcontainers"):
        status, body = await served.call("POST", f"{path}/p/{below}")
        assert status == 400 and "run no containers" in body["message"]
    assert (await served.call("POST", f"{path}/none/exec"))[0] == 404
    status, body = await served.call("GET", f"{path}/p/nosuch")
    assert status == 404 and body["details"] == {}


async def test_openapi_v2_in_its_binary_form_knows_nothing(served: Served) -> None:
    """kubectl asks it about unserved kinds, and then says that there are no matches for the kind."""
    form = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    async with served.session.get(served.url + "/openapi/v2", headers={"Accept": form}) as response:
        assert (response.status, await response.read()) == (200, b"\x0a\x032.0\x12\x00")


async def test_a_scale_and_a_role_have_columns_of_their_own(served: Served) -> None:
    """kubectl get --subresource=scale, and get roles,rolebindings."""
    served.world.create("deployments", "web", spec=workload_spec(replicas=3))
    path = "/apis/apps/v1/namespaces/default/deployments/web/scale"
    body = (await served.call("GET", path, Accept=TABLE))[1]
    assert [column["name"] for column in body["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert body["rows"][0]["cells"][:3] == ["web", 3, 0]
    served.world.create("clusterrolebindings", "b", roleRef={"kind": "ClusterRole", "name": "r"})
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    body = (await served.call("GET", bindings, Accept=TABLE))[1]
    assert body["rows"][0]["cells"][:2] == ["b", "ClusterRole/r"]


async def test_a_json_patch_without_its_place_is_refused_without_the_object(served: Served) -> None:
    """422 as from an API server, naming the place and not the whole object."""
    served.world.create("configmaps", "c", data={"secret": "x"})
    patch = [{"op": "replace", "path": "/data/none/deep", "value": 1}]
    status, body = await served.call("PATCH", f"{CONFIG_MAPS}/c", patch, Content_Type="application/json-patch+json")
    assert status == 422
    assert "/data/none/deep is missing" in body["message"] and "secret" not in body["message"]


async def test_kubectl_takes_over_server_side_what_it_applied_before(served: Served) -> None:
    """Its own earlier client-side apply is no conflict, and the note of it is kept up; a stranger's field is one."""
    note = "kubectl.kubernetes.io/last-applied-configuration"
    first = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    body = {**first, "metadata": {"name": "c", "annotations": {note: json.dumps(first)}}}
    await served.call("POST", f"{CONFIG_MAPS}?fieldManager=kubectl-client-side-apply", body)
    wanted = {**first, "data": {"a": "2"}}
    apply = {"Content_Type": "application/apply-patch+yaml"}
    assert (await served.call("PATCH", f"{CONFIG_MAPS}/c?fieldManager=other", wanted, **apply))[0] == 409
    status, found = await served.call("PATCH", f"{CONFIG_MAPS}/c?fieldManager=kubectl", wanted, **apply)
    assert (status, found["data"]) == (200, {"a": "2"})
    assert json.loads(found["metadata"]["annotations"][note])["data"] == {"a": "2"}
