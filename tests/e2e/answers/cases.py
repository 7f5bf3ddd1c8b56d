"""The requests, in the order they are sent. `{ns}` stands for the test's namespace.

`words` is False where the two refuse the same field for the same reason in different words: Go's own decoder and
parser messages, mostly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.sim.store.test_custom_kinds import CRD

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
PLAIN = "application/json"

MAPS = "/api/v1/namespaces/{ns}/configmaps"
PODS = "/api/v1/namespaces/{ns}/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
NODES = "/api/v1/nodes"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/{ns}/widgets"


@dataclass(frozen=True)
class Case:
    method: str
    path: str
    body: Any = None
    content_type: str = PLAIN
    words: bool = True


def _container(**more: Any) -> dict[str, Any]:
    return {"name": "main", "image": "app:1", **more}


def _pod(**spec: Any) -> Case:
    body = {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": {"containers": [_container()], **spec}}
    return Case("POST", PODS, body)


def _with_resources(**resources: Any) -> Case:
    return _pod(containers=[_container(resources=resources)])


def _wordless(case: Case) -> Case:
    return Case(case.method, case.path, case.body, case.content_type, words=False)


def _node_affinity(**expression: Any) -> Case:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", **expression}]}]}
    return _pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def _spread(**constraint: Any) -> Case:
    return _pod(topologySpreadConstraints=[constraint])


def _deployment(path: str = DEPLOYMENTS, **spec: Any) -> Case:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [_container()]}}
    base = {"selector": {"matchLabels": {"app": "web"}}, "template": template, "replicas": 0}
    return Case("POST", path, {"metadata": {"name": "web"}, "spec": {**base, **spec}})


def _template(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "web"}}, "spec": spec}


def _node(**rest: Any) -> Case:
    return Case("POST", NODES, {"metadata": {"name": "same-answers"}, **rest})


def _budget(**spec: Any) -> Case:
    return Case("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})


def _widget(**spec: Any) -> Case:
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}
    return Case("POST", WIDGETS, body)


METADATA = [
    Case("GET", f"{MAPS}/none"),
    Case("POST", MAPS, {"metadata": {"name": "Upper"}}),
    Case("POST", MAPS, {"metadata": {"name": "a", "labels": {"a": "not valid!"}}}),
    Case("POST", MAPS, {"metadata": {"name": "a", "labels": {"bad key": "x"}}}),
    Case("POST", MAPS, {"metadata": {}}),
    Case("POST", "/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}}),
    Case("POST", MAPS, {"metadata": {"name": "a", "namespace": "kube-system"}}),
    Case("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}),
    Case("POST", MAPS, {"metadata": {"name": "a"}}),
    Case("POST", MAPS, {"metadata": {"name": "a"}, "data": "x"}, words=False),
    Case("POST", MAPS, {"kind": "Pod", "metadata": {"name": "a"}}, words=False),
    Case("POST", MAPS, "text", words=False),
    Case("PATCH", f"{MAPS}/a", {"metadata": {"resourceVersion": "1"}}, MERGE),
    Case("PATCH", f"{MAPS}/a", {"metadata": {"uid": "other"}}, MERGE),
    Case("PATCH", f"{MAPS}/a", {"metadata": {"name": "b"}}, MERGE),
    Case("PATCH", f"{MAPS}/a", [{"op": "test", "path": "/data/k", "value": "w"}], JSON_PATCH, words=False),
    Case("PATCH", f"{MAPS}/a", [{"op": "remove", "path": "/data/none"}], JSON_PATCH, words=False),
    Case("PATCH", f"{MAPS}/a", {"data": {}}, "text/plain", words=False),
    Case("PUT", f"{MAPS}/a", {"metadata": {"name": "a", "uid": "other"}}, words=False),
    Case("PUT", f"{MAPS}/a", {"metadata": {"name": "b"}}),
    Case("DELETE", f"{MAPS}/a", {"preconditions": {"uid": "other"}}),
    Case("DELETE", f"{MAPS}/a", {"preconditions": {"resourceVersion": "1"}}),
    Case("DELETE", f"{MAPS}/a", {"propagationPolicy": "Sometimes"}),
    Case("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/x"]}}, MERGE),
    Case("DELETE", f"{MAPS}/a"),
    Case("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/x", "example.com/y"]}}, MERGE),
    Case("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, MERGE),
    Case("GET", f"{MAPS}/a"),
    Case("GET", f"{MAPS}?labelSelector=a%20b", words=False),
    Case("GET", f"{PODS}?fieldSelector=spec.colour=red"),
    Case("GET", f"{MAPS}?continue=rubbish", words=False),
    Case("GET", f"{MAPS}?limit=x", words=False),
    Case("GET", f"{MAPS}?resourceVersion=x", words=False),
]

PLACEMENT = [
    _pod(containers=[]),
    _pod(containers=[{"name": "main"}]),
    _pod(containers=[_container(), _container()]),
    _with_resources(requests={"cpu": "-1"}),
    _with_resources(requests={"cpu": "2"}, limits={"cpu": "1"}),
    _with_resources(requests={"example.com/gpu": "1"}),
    _with_resources(limits={"colour": "1"}),
    _wordless(_with_resources(requests={"cpu": "much"})),
    _wordless(_pod(containers="x")),
    _node_affinity(operator="Near", values=["a"]),
    _node_affinity(operator="In"),
    _node_affinity(operator="Exists", values=["a"]),
    _node_affinity(operator="Gt", values=["a", "b"]),
    _pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
    _pod(tolerations=[{"key": "a", "operator": "Exists", "value": "x"}]),
    _pod(tolerations=[{"key": "a", "effect": "Never"}]),
    _pod(tolerations=[{"operator": "Equal"}]),
    _pod(restartPolicy="Sometimes"),
    _spread(maxSkew=0, topologyKey="zone", whenUnsatisfiable="DoNotSchedule"),
    _spread(maxSkew=1, topologyKey="", whenUnsatisfiable="No", minDomains=0),
    _pod(containers=[_container(ports=[{"containerPort": 70000}])]),
    _pod(containers=[_container(volumeMounts=[{"name": "data", "mountPath": "/d"}])]),
    _pod(nodeSelector={"a": "b c"}),
    _pod(priorityClassName="none"),
    _pod(priority=5),
    _pod(schedulingGates=[{"name": "wait"}]),
    Case("PATCH", f"{PODS}/p", {"spec": {"nodeName": "n"}}, MERGE, words=False),
    Case("PATCH", f"{PODS}/p", {"spec": {"schedulingGates": [{"name": "again"}]}}, MERGE),
    Case("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
    Case("POST", f"{PODS}/none/eviction", {"metadata": {"name": "none"}}),
    Case("DELETE", f"{PODS}/p"),
    _node(spec={"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}),
    _node(spec={"taints": [{"key": "a", "effect": "Some"}]}),
    _node(status={"capacity": {"cpu": "-1"}}),
    _wordless(_node(status={"capacity": {"cpu": "x"}})),
    _node(spec={"providerID": "a://b"}),
    Case("PATCH", f"{NODES}/same-answers", {"spec": {"providerID": "a://c"}}, MERGE),
    Case("PATCH", f"{NODES}/same-answers", {"spec": {"taints": [{"key": "a"}]}}, MERGE),
    Case("DELETE", f"{NODES}/same-answers"),
]

WORKLOADS = [
    _deployment(selector=None),
    _deployment(selector={"matchLabels": {"app": "x"}}),
    _deployment(selector={}),
    _deployment(replicas=-1),
    _deployment(template=_template(containers=[{"name": "main"}])),
    _deployment(template=_template(containers=[_container()], restartPolicy="Never")),
    _deployment(f"{DEPLOYMENTS}?fieldValidation=Strict", replicaz=1),
    _wordless(_deployment(replicas=1.0)),
    _wordless(_deployment(replicas=2**31)),
    _deployment(revisionHistoryLimit=-1),
    _deployment(minReadySeconds=600, progressDeadlineSeconds=600),
    _deployment(strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}),
    _deployment(strategy={"type": "Other"}),
    _deployment(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
    _deployment(strategy={"rollingUpdate": {"maxSurge": "x%"}}),
    _deployment(strategy={"rollingUpdate": {"maxUnavailable": "150%"}}),
    _deployment(selector={"matchExpressions": [{"key": "app", "operator": "In"}]}),
    _deployment(selector={"matchExpressions": [{"key": "app", "operator": "Foo"}]}),
    _deployment(template={"spec": {"containers": [_container()]}}),
    _deployment(template=_template(containers=[_container(env=[{"value": "x"}])])),
    _deployment(template=_template(containers=[_container(imagePullPolicy="Never!")])),
    _deployment(template=_template(containers=[_container(livenessProbe={"httpGet": {"path": "/"}})])),
    _deployment(template=_template(containers=[_container(lifecycle={"preStop": {}})])),
    _deployment(template=_template(containers=[_container(securityContext={"runAsUser": -1})])),
    _deployment(template=_template(containers=[_container()], initContainers=[_container()])),
    _deployment(template=_template(containers=[_container()], activeDeadlineSeconds=0)),
    _deployment(template=_template(containers=[_container()], dnsPolicy="No")),
    _deployment(template=_template(containers=[_container()], nodeName="BAD_name")),
    _deployment(template=_template(containers=[_container()], volumes=[{"name": "v", "persistentVolumeClaim": {}}])),
    _deployment(
        template=_template(
            containers=[
                _container(ports=[{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}])
            ]
        )
    ),
    _deployment(),
    Case("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"selector": {"matchLabels": {"app": None, "x": "y"}}}}, MERGE),
    Case("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": -1}}, MERGE),
    Case("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"replicas": 0}}, APPLY),
    Case(
        "PATCH",
        f"{DEPLOYMENTS}/web?fieldManager=one",
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"minReadySeconds": 1}},
        APPLY,
    ),
    Case(
        "PATCH",
        f"{DEPLOYMENTS}/web?fieldManager=two",
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"minReadySeconds": 2}},
        APPLY,
    ),
    Case("DELETE", f"{DEPLOYMENTS}/web"),
    Case("POST", JOBS, {"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": [_container()]}}}}),
    _budget(minAvailable=1, maxUnavailable=1),
    _budget(minAvailable="x"),
    _budget(maxUnavailable="101%"),
    _budget(maxUnavailable=-1),
    _budget(minAvailable=1, selector={"matchExpressions": [{"key": "a", "operator": "Foo"}]}),
    Case("POST", f"{MAPS}?dryRun=Some", {"metadata": {"name": "x"}}),
    Case("POST", f"{MAPS}?fieldValidation=Some", {"metadata": {"name": "x"}}),
    Case("POST", MAPS, {"metadata": {"name": "x"}, "data": {"a b": "1"}}),
    Case("POST", MAPS, {"metadata": {"name": "x", "ownerReferences": [{"kind": "A"}]}}),
    Case("POST", "/api/v1/namespaces", {"metadata": {"name": "a.b"}}),
    Case("POST", PRIORITIES, {"metadata": {"name": "system-x"}, "value": 1}),
    Case("POST", PRIORITIES, {"metadata": {"name": "x"}, "value": 2_000_000_000}),
    Case("POST", STORAGE, {"metadata": {"name": "x"}}),
]

CUSTOM = [
    Case("POST", DEFINITIONS, {**CRD, "metadata": {"name": "wrong.example.com"}}),
    Case("POST", DEFINITIONS, CRD),
    _widget(),
    _widget(size=0),
    _widget(size=11),
    _widget(size="1"),
    _widget(size=1.5),
    _widget(size=1, mode="odd"),
    _widget(size=1, window="x"),
    _widget(size=1, window="12345s"),
    _widget(size=1, amount=True),
    _widget(size=1, amount="x"),
    _widget(size=1, tags=[{"key": "a"}, {"key": "b"}, {"key": "c"}]),
    _widget(size=1, tags=[{"key": "a"}, {"key": "a"}]),
    _widget(size=1, tags=[{"value": "a"}]),
    _widget(size=1, tags=[{"key": "a"}, {"key": "reserved"}]),
    _widget(size=1, tags="x"),
    _widget(size=1, tags=[None]),
    _widget(size=1, tags=[{"key": "a"}, None]),
    _widget(size=1, labels={"a": ""}),
    _widget(size=1, labels={"a": 1}),
    _widget(size=1, labels={"a": "1", "b": "2", "c": "3"}),
    _widget(size=7, mode="fast"),
    _widget(size=1, when="noon"),
    _wordless(Case("POST", f"{WIDGETS}?fieldValidation=Strict", {**_widget(size=1, colour="red").body})),
    Case("POST", WIDGETS, {"metadata": {"name": "w"}, "spec": {"size": 1}}, words=False),
    _widget(size=3, maybe=None, mode=None, colour="x"),
    Case("PATCH", f"{WIDGETS}/w", {"spec": {"size": 2}}, MERGE),
    Case("PATCH", f"{WIDGETS}/w", {"spec": {"size": 4}}, STRATEGIC),
    Case("PATCH", f"{WIDGETS}/w/status", {"spec": {"size": 9}, "status": {"size": 1, "junk": 1}}, MERGE),
    Case("PATCH", f"{WIDGETS}/w/status", {"status": {"size": "x"}}, MERGE, words=False),
    Case("GET", f"{WIDGETS}/w"),
    Case("DELETE", f"{WIDGETS}/w"),
    Case("DELETE", f"{DEFINITIONS}/widgets.example.com"),
]
