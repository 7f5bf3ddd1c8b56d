"""What the server fills in and refuses in built-in kinds."""

from typing import Any

import pytest

from pykarpenter.kube.errors import BadRequest, Forbidden, Invalid
from pykarpenter.sim.store import WriteOptions

from .world import World, pod_spec, workload_spec


def admitted(**spec: Any) -> dict[str, Any]:
    return World().create("pods", "p", spec=pod_spec(**spec)).obj


def container(**more: Any) -> dict[str, Any]:
    return {"name": "main", "image": "app:1", **more}


def causes(refused: Any) -> list[tuple[str, str]]:
    return [(cause["field"], cause["message"]) for cause in refused.value.details["causes"]]


def refusal(**spec: Any) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as refused:
        admitted(**spec)
    return causes(refused)


def test_limits_become_requests() -> None:
    """Scheduling counts requests, so a pod with limits alone must have them."""
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    pod = admitted(containers=[container(resources=resources)])
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_pods_start_pending_with_kubernetes_defaults() -> None:
    """Controllers and kubectl read these fields without checking that they are there."""
    pod = admitted()
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["schedulerName"]) == ("Always", "default-scheduler")
    assert (spec["terminationGracePeriodSeconds"], spec["priority"]) == (30, 0)


def test_pods_tolerate_a_lost_node_for_five_minutes() -> None:
    """The default tolerations, unless the pod brings its own."""
    keys = [(item["key"], item["tolerationSeconds"]) for item in admitted()["spec"]["tolerations"]]
    assert keys == [("node.kubernetes.io/not-ready", 300), ("node.kubernetes.io/unreachable", 300)]
    everything = [{"operator": "Exists"}]
    assert admitted(tolerations=everything)["spec"]["tolerations"] == everything


def test_priority_comes_from_the_class() -> None:
    """By name, or from the class that is the default for all."""
    world = World()
    world.create("priorityclasses", "high", value=100)
    assert world.create("pods", "a", spec=pod_spec(priorityClassName="high")).obj["spec"]["priority"] == 100
    assert world.create("pods", "b", spec=pod_spec()).obj["spec"]["priority"] == 0
    world.create("priorityclasses", "usual", value=7, globalDefault=True)
    assert world.create("pods", "c", spec=pod_spec()).obj["spec"]["priority"] == 7
    system = world.create("pods", "d", spec=pod_spec(priorityClassName="system-node-critical"))
    assert system.obj["spec"]["priority"] == 2_000_001_000
    with pytest.raises(Forbidden, match="no PriorityClass with name none was found"):
        world.create("pods", "e", spec=pod_spec(priorityClassName="none"))
    with pytest.raises(Forbidden, match=r"the integer value of priority \(5\) must not be provided"):
        world.create("pods", "f", spec=pod_spec(priority=5))


def test_equal_specs_are_stored_once() -> None:
    """Ten thousand pods of one workload share one spec."""
    world = World()
    first, second = (world.create("pods", name, spec=pod_spec()) for name in "ab")
    assert first.obj["spec"] is second.obj["spec"]


def test_b24_a_spread_without_skew_is_refused() -> None:
    """maxSkew 0 could never be met."""
    spread = [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    assert refusal(topologySpreadConstraints=spread) == [
        ("spec.topologySpreadConstraints[0].maxSkew", "Invalid value: 0: must be greater than zero")
    ]


def node_affinity(**expression: Any) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", **expression}]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


NODE_TERM = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
POD_TERM = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"containers": []}, "spec.containers", "Required value"),
        ({"containers": [{"name": "main"}]}, "spec.containers[0].image", "Required value"),
        ({"containers": [container(), container()]}, "spec.containers[1].name", 'Duplicate value: "main"'),
        (
            {"containers": [container(resources={"requests": {"cpu": "-1"}})]},
            "spec.containers[0].resources.requests[cpu]",
            'Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            {"containers": [container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})]},
            "spec.containers[0].resources.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"containers": [container(resources={"requests": {"example.com/gpu": "1"}})]},
            "spec.containers[0].resources.limits",
            "Required value: Limit must be set for non overcommitable resources",
        ),
        (
            {"containers": [container(resources={"limits": {"colour": "1"}, "requests": {"cpu": "1"}})]},
            "spec.containers[0].resources.limits[colour]",
            'Invalid value: "colour": must be a standard resource for containers',
        ),
        (
            {"affinity": node_affinity(operator="Near", values=["a"])},
            f"{NODE_TERM}.matchExpressions[0].operator",
            'Invalid value: "Near": not a valid selector operator',
        ),
        (
            {"affinity": node_affinity(operator="In")},
            f"{NODE_TERM}.matchExpressions[0].values",
            "Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            f"{POD_TERM}.topologyKey",
            "Required value: can not be empty",
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
            "spec.tolerations[0].operator",
            "Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
        ),
        (
            {"tolerations": [{"key": "a", "effect": "Never"}]},
            "spec.tolerations[0].effect",
            'Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
        ),
        (
            {"restartPolicy": "Sometimes"},
            "spec.restartPolicy",
            'Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            {"containers": [container(ports=[{"containerPort": 70000}])]},
            "spec.containers[0].ports[0].containerPort",
            "Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            {"containers": [container(volumeMounts=[{"name": "data", "mountPath": "/d"}])]},
            "spec.containers[0].volumeMounts[0].name",
            'Not found: "data"',
        ),
    ],
)
def test_b23_a_bad_pod_is_refused_with_its_path(spec: dict[str, Any], field: str, message: str) -> None:
    """The same field and words as a real API server's."""
    assert (field, message) in refusal(**spec)


@pytest.mark.parametrize("kind", ["pods", "deployments"])
def test_a_quantity_that_is_no_number_is_refused(kind: str) -> None:
    """The user sees which one."""
    containers = [container(resources={"requests": {"cpu": "much"}})]
    spec = pod_spec(containers=containers)
    if kind == "deployments":
        spec = workload_spec(template={"metadata": {"labels": {"app": "web"}}, "spec": spec})
    with pytest.raises(BadRequest, match=r"containers\[0\]\.resources\.requests\.cpu: 'much': quantities must match"):
        World().create(kind, "p", spec=spec)


def test_values_of_the_wrong_type_are_refused() -> None:
    """Bad input from a file gets an answer with the path, never an exception from inside."""
    with pytest.raises(BadRequest, match=r'Pod in version "v1" cannot be handled as a Pod: spec\.containers: "x"'):
        World().create("pods", "p", spec={"containers": "x"})


def test_a_pod_changes_little_once_it_is_there() -> None:
    """Only images, tolerations and gates; a node is given by binding alone."""
    world = World()
    world.create("pods", "p", spec=pod_spec(schedulingGates=[{"name": "wait"}]))
    world.patch("pods", "p", {"spec": {"schedulingGates": None}})
    with pytest.raises(Invalid, match="pod updates may not change fields other than"):
        world.patch("pods", "p", {"spec": {"nodeName": "n"}})
    with pytest.raises(Invalid, match=r"spec\.schedulingGates\[0\]\.name: Forbidden: only deletion is allowed"):
        world.patch("pods", "p", {"spec": {"schedulingGates": [{"name": "again"}]}})


def test_resize_changes_requests_and_nothing_else() -> None:
    """In-place resize has a door of its own."""
    world = World()
    world.create("pods", "p", spec=pod_spec(containers=[container(resources={"requests": {"cpu": "1"}})]))
    containers = [{**world.get("pods", "p")["spec"]["containers"][0], "resources": {"requests": {"cpu": "2"}}}]
    with pytest.raises(Invalid):
        world.patch("pods", "p", {"spec": {"containers": containers}})
    world.patch("pods", "p", {"spec": {"containers": containers}}, subresource="resize")
    assert world.get("pods", "p")["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    with pytest.raises(Invalid, match="only cpu and memory resources are mutable"):
        world.patch("pods", "p", {"spec": {"nodeName": "n"}}, subresource="resize")


def test_a_node_keeps_its_provider_id() -> None:
    """A machine's identity is set once."""
    world = World()
    world.create("nodes", "n")
    world.patch("nodes", "n", {"spec": {"providerID": "kwok://n"}})
    with pytest.raises(Invalid, match=r"spec\.providerID: Forbidden: node updates may not change providerID"):
        world.patch("nodes", "n", {"spec": {"providerID": "kwok://other"}})


def test_a_node_registers_with_its_status() -> None:
    """Kubelets create their node with capacity; allocatable follows it when absent."""
    made = World().create("nodes", "n", status={"capacity": {"cpu": "4"}})
    assert made.obj["status"]["allocatable"] == {"cpu": "4"}


def test_a_new_node_takes_no_pods_before_it_is_seen_ready() -> None:
    """The scheduler must not win the race against the node controller."""
    made = World(taint_new_nodes=True).create("nodes", "n", spec={"taints": [{"key": "a", "effect": "NoExecute"}]})
    assert [taint["key"] for taint in made.obj["spec"]["taints"]] == ["a", "node.kubernetes.io/not-ready"]
    assert "spec" not in World().create("nodes", "n").obj


def test_b8_a_node_has_no_taint_twice() -> None:
    """Key and effect identify a taint."""
    world = World()
    taint = {"key": "a", "effect": "NoSchedule"}
    with pytest.raises(Invalid, match="taints must be unique by key and effect pair"):
        world.create("nodes", "n", spec={"taints": [taint, taint]})
    with pytest.raises(Invalid, match=r'metadata\.taints\[0\]\.effect: Unsupported value: "Sometimes"'):
        world.create("nodes", "n", spec={"taints": [{"key": "a", "effect": "Sometimes"}]})


def test_a_selector_must_match_its_own_template() -> None:
    """Otherwise a workload would create pods for ever."""
    with pytest.raises(Invalid, match="`selector` does not match template `labels`"):
        World().create("deployments", "web", spec=workload_spec(selector={"matchLabels": {"app": "other"}}))


def test_a_selector_cannot_change() -> None:
    """Pods that it no longer finds would be left behind."""
    world = World()
    world.create("deployments", "web", spec=workload_spec())
    with pytest.raises(Invalid, match=r"spec\.selector: Invalid value: .*: field is immutable"):
        world.patch("deployments", "web", {"spec": {"selector": {"matchLabels": {"app": None, "a": "b"}}}})


def test_a_template_is_as_strict_as_a_pod() -> None:
    """The path leads through the template."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}
    with pytest.raises(Invalid) as refused:
        World().create("deployments", "web", spec=workload_spec(template=template))
    assert causes(refused) == [("spec.template.spec.containers[0].image", "Required value")]


def test_a_job_finds_its_pods_by_its_own_uid() -> None:
    """Two jobs of the same labels must not count each other's pods."""
    template = {"spec": pod_spec(restartPolicy="Never")}
    job = World().create("jobs", "batch", spec={"template": template}).obj
    uid = job["metadata"]["uid"]
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert job["spec"]["template"]["metadata"]["labels"]["job-name"] == "batch"
    assert (job["spec"]["completions"], job["spec"]["parallelism"], job["spec"]["backoffLimit"]) == (1, 1, 6)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minAvailable": 1, "maxUnavailable": 1}, "spec"),
        ({"minAvailable": "x"}, "spec.minAvailable"),
        ({"maxUnavailable": "101%"}, "spec.maxUnavailable"),
        ({"maxUnavailable": -1}, "spec.maxUnavailable"),
    ],
)
def test_a_bad_budget_is_refused(spec: dict[str, Any], field: str) -> None:
    """A budget that cannot be read protects nobody."""
    with pytest.raises(Invalid) as refused:
        World().create("poddisruptionbudgets", "b", spec=spec)
    assert [cause[0] for cause in causes(refused)] == [field]


def test_unknown_fields_of_built_in_kinds_are_dropped_or_refused() -> None:
    """A misspelt field is the commonest mistake in a manifest."""
    world = World()
    body = {"metadata": {"name": "p"}, "spec": pod_spec(nodeSelectors={"a": "b"})}
    with pytest.raises(BadRequest, match=r'strict decoding error: unknown field "spec\.nodeSelectors"'):
        world.store.create(world.kind("pods"), body, "default", WriteOptions(field_validation="Strict"))
    warnings: list[str] = []
    options = WriteOptions(field_validation="Warn", warnings=warnings)
    made = world.store.create(world.kind("pods"), body, "default", options)
    assert warnings == ['unknown field "spec.nodeSelectors"'] and "nodeSelectors" not in made.obj["spec"]


def test_a_stateful_set_may_mount_the_volumes_of_its_claim_templates() -> None:
    """Every database does so, and the volumes are not in the template itself."""
    mounting = [container(volumeMounts=[{"name": "data", "mountPath": "/data"}])]
    spec = workload_spec()
    spec["template"]["spec"]["containers"] = mounting
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    World().create("statefulsets", "db", spec={**spec, "serviceName": "db", "volumeClaimTemplates": [claim]})
    with pytest.raises(Invalid) as refused:
        World().create("statefulsets", "db", spec={**spec, "serviceName": "db"})
    assert [field for field, _ in causes(refused)] == ["spec.template.spec.containers[0].volumeMounts[0].name"]


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"revisionHistoryLimit": -1}, "spec.revisionHistoryLimit", "greater than or equal to 0"),
        ({"progressDeadlineSeconds": 0}, "spec.progressDeadlineSeconds", "must be greater than minReadySeconds"),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}},
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        ),
        ({"strategy": {"type": "Other"}}, "spec.strategy", 'supported values: "Recreate", "RollingUpdate"'),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}},
            "spec.strategy.rollingUpdate.maxUnavailable",
            "may not be 0 when `maxSurge` is 0",
        ),
        ({"strategy": {"rollingUpdate": {"maxSurge": "x%"}}}, "spec.strategy.rollingUpdate.maxSurge", "percent string"),
        (
            {"strategy": {"rollingUpdate": {"maxUnavailable": "150%"}}},
            "spec.strategy.rollingUpdate.maxUnavailable",
            "must not be greater than 100%",
        ),
        (
            {"selector": {"matchExpressions": [{"key": "app", "operator": "Foo"}]}},
            "spec.selector.matchExpressions[0].operator",
            "not a valid selector operator",
        ),
    ],
)
def test_rollouts_that_cannot_be_are_refused(spec: dict[str, Any], field: str, message: str) -> None:
    """Each in the words of an API server, an operator that does not exist included."""
    with pytest.raises(Invalid) as refused:
        World().create("deployments", "web", spec={**workload_spec(), **spec})
    found = dict(causes(refused))
    assert message in found[field]


@pytest.mark.parametrize("replicas", [1.0, 1.5, "1", True, 2**31])
def test_replicas_are_a_whole_number_of_32_bits(replicas: Any) -> None:
    """1.0 is no integer to an API server either, and would end as a float in our own arithmetic."""
    with pytest.raises(BadRequest, match=r"spec\.replicas"):
        World().create("deployments", "web", spec={**workload_spec(), "replicas": replicas})


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"env": [{"value": "x"}]}, "env[0].name"),
        ({"imagePullPolicy": "Never!"}, "imagePullPolicy"),
        ({"ports": [{"containerPort": 80, "name": "far-too-long-a-name"}]}, "ports[0].name"),
        (
            {"ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}]},
            "ports[1].hostPort",
        ),
        ({"volumeMounts": [{"name": "v"}]}, "volumeMounts[0].mountPath"),
        ({"livenessProbe": {"httpGet": {"path": "/"}}}, "livenessProbe.httpGet.port"),
        ({"readinessProbe": {"periodSeconds": 1}}, "readinessProbe"),
        ({"startupProbe": {"exec": {}, "periodSeconds": -1}}, "startupProbe.periodSeconds"),
        ({"lifecycle": {"preStop": {}}}, "lifecycle.preStop"),
        ({"securityContext": {"runAsUser": -1}}, "securityContext.runAsUser"),
        ({"restartPolicy": "Sometimes"}, "restartPolicy"),
        ({"resources": {"limits": {"hugepages-2Mi": "2Mi"}}}, "resources"),
        ({"resources": {"limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}}}, "resources.limits[hugepages-2Mi]"),
    ],
)
def test_containers_that_cannot_run_are_refused(more: dict[str, Any], field: str) -> None:
    """What the kubelet could not start is refused before it is stored, as by an API server."""
    fields = [found for found, _ in refusal(containers=[container(**more)], volumes=[{"name": "v", "emptyDir": {}}])]
    assert f"spec.containers[0].{field}" in fields


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"dnsPolicy": "No"}, "spec.dnsPolicy"),
        ({"nodeName": "Bad_name"}, "spec.nodeName"),
        ({"serviceAccountName": "Bad_name"}, "spec.serviceAccountName"),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
        ({"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}, "spec.volumes[0].hostPath"),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {}}]},
            "spec.volumes[0].persistentVolumeClaim.claimName",
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"]}
                ]
            },
            "spec.topologySpreadConstraints[0].matchLabelKeys",
        ),
        ({"initContainers": [{"name": "main", "image": "a"}]}, "spec.initContainers[0].name"),
    ],
)
def test_pods_with_a_wrong_field_are_refused_by_its_path(spec: dict[str, Any], field: str) -> None:
    """Names, policies, volumes and spread that no cluster takes."""
    assert field in [found for found, _ in refusal(**spec)]


@pytest.mark.parametrize(
    ("written", "stored"),
    [(1, "1"), (0.5, "500m"), ("1000m", "1"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("1000", "1k"), ("1e3", "1e3")],
)
def test_amounts_are_stored_in_one_form(written: Any, stored: str) -> None:
    """As an API server stores them: what is read back compares equal however it was written."""
    pod = admitted(containers=[container(resources={"requests": {"memory": written}})])
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"memory": stored}


@pytest.mark.parametrize(
    ("plural", "body", "field"),
    [
        ("persistentvolumeclaims", {"spec": {"accessModes": ["Often"]}}, "spec.accessModes"),
        ("persistentvolumeclaims", {"spec": {"resources": {"requests": {"storage": "0"}}}}, "spec.resources[storage]"),
        ("leases", {"spec": {"leaseDurationSeconds": 0}}, "spec.leaseDurationSeconds"),
        ("configmaps", {"data": {"a b": "1"}}, "data[a b]"),
        ("statefulsets", {"spec": {**workload_spec(), "podManagementPolicy": "X"}}, "spec.podManagementPolicy"),
        (
            "daemonsets",
            {"spec": {**workload_spec(), "updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}},
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
        ),
    ],
)
def test_other_kinds_are_refused_by_the_path_of_what_is_wrong(plural: str, body: dict[str, Any], field: str) -> None:
    """Storage, leases, maps and the workloads that keep their pods in order."""
    with pytest.raises(Invalid) as refused:
        World().create(plural, "x", **body)
    assert field in [found for found, _ in causes(refused)]
