"""Pods as an API server sends them: about 5 kB of JSON each, 600 workloads, everything per pod that defeats sharing.

Each has managedFields, probes, an injected service-account volume with a random name, environment, conditions and
container statuses. The text is made from templates, so 100,000 pods cost seconds and no disk.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

WORKLOADS = 600
PAGE = 500
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def _suffix(rng: random.Random, length: int) -> str:
    return "".join(rng.choice(_LETTERS) for _ in range(length))


def _container(rng: random.Random, name: str, workload: int) -> dict[str, Any]:
    probe = {
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "initialDelaySeconds": 5,
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    return {
        "name": name,
        "image": f"registry.example.com/team-{workload % 23}/{name}-{workload}:v1.{workload % 7}.{workload % 11}",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"SETTING_{n}", "value": f"value-{workload}-{n}"} for n in range(6)],
        "resources": {
            "requests": {
                "cpu": f"{rng.choice([50, 100, 250, 500, 1000])}m",
                "memory": f"{rng.choice([64, 256, 512])}Mi",
            },
            "limits": {"memory": "1Gi"},
        },
        "volumeMounts": [
            {
                "name": "kube-api-access-@VOL@",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            }
        ],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _injected_volume() -> dict[str, Any]:
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
            }
        },
    ]
    return {"name": "kube-api-access-@VOL@", "projected": {"sources": sources, "defaultMode": 420}}


def _managed_fields() -> list[dict[str, Any]]:
    leaves = {f"f:field{n}": {} for n in range(22)}
    spec = {"f:spec": {"f:containers": {'k:{"name":"app"}': {".": {}, **leaves}}, "f:dnsPolicy": {}, **leaves}}
    status = {"f:status": {"f:conditions": {f'k:{{"type":"T{n}"}}': {".": {}, "f:status": {}} for n in range(5)}}}
    stamp = {"apiVersion": "v1", "time": "@CREATED@", "fieldsType": "FieldsV1"}
    return [
        {"manager": "kube-controller-manager", "operation": "Update", **stamp, "fieldsV1": spec},
        {"manager": "kubelet", "operation": "Update", **stamp, "fieldsV1": status, "subresource": "status"},
    ]


def _affinity(rng: random.Random, app: str) -> dict[str, Any]:
    spread = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [f"zone-{rng.randrange(3)}"]}
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": spread}]
        },
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
        },
    }


def _template(workload: int) -> str:
    """The JSON text of a workload's pods, with marks where pods differ."""
    rng = random.Random(workload)
    app = f"app-{workload}"
    containers = [_container(rng, "app", workload)]
    if workload % 3 == 0:
        containers.append(_container(rng, "sidecar", workload))
    names = [container["name"] for container in containers]
    status_times = "@STARTED@"
    body: dict[str, Any] = {
        "metadata": {
            "name": f"{app}-{workload:08x}-@SUFFIX@",
            "generateName": f"{app}-{workload:08x}-",
            "namespace": f"team-{workload % 23}",
            "uid": "@UID@",
            "resourceVersion": "@RV@",
            "creationTimestamp": "@CREATED@",
            "labels": {"app": app, "pod-template-hash": f"{workload:08x}", "tier": f"tier-{workload % 4}"},
            "annotations": {"cni.example.com/podIP": "@IP@", "prometheus.io/scrape": "true"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-{workload:08x}",
                    "uid": f"{workload:08x}-0000-4000-8000-000000000000",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": _managed_fields(),
        },
        "spec": {
            "volumes": [_injected_volume()],
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "nodeName": "@NODE@",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": when}
                for kind, when in (
                    ("PodReadyToStartContainers", status_times),
                    ("Initialized", "@CREATED@"),
                    ("Ready", status_times),
                    ("ContainersReady", status_times),
                    ("PodScheduled", "@CREATED@"),
                )
            ],
            "hostIP": "10.0.0.1",
            "podIP": "@IP@",
            "podIPs": [{"ip": "@IP@"}],
            "startTime": "@CREATED@",
            "containerStatuses": [
                {
                    "name": name,
                    "state": {"running": {"startedAt": status_times}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": f"registry.example.com/{name}:v1",
                    "imageID": f"registry.example.com/{name}@sha256:{workload:064x}",
                    "containerID": "containerd://@CID@",
                    "started": True,
                }
                for name in names
            ],
            "qosClass": "Burstable",
        },
    }
    if workload % 2 == 0:
        body["spec"]["affinity"] = _affinity(rng, app)
    return json.dumps(body, separators=(",", ":"))


def pod_texts(
    count: int, *, seed: int = 1, workloads: int = WORKLOADS, own_claims: bool = False, nodes: Sequence[str] = ()
) -> Iterator[str]:
    """`count` pods as JSON texts, one workload after the other: lists come sorted by namespace and name.

    With `own_claims` each has a volume claim of its own, as StatefulSet pods do: no two specs are equal. They run on
    `nodes` in turn, or on nodes made up for them.
    """
    rng = random.Random(seed)
    templates = [_template(workload) for workload in range(workloads)]
    for number in range(count):
        second = rng.randrange(86_400)
        created = f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
        started = f"2026-01-02T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
        text = templates[number * workloads // count]
        made_up = f"node-{rng.randrange(max(1, count // 30)):05d}.internal"
        for mark, value in (
            ("@VOL@", _suffix(rng, 5)),
            ("@SUFFIX@", _suffix(rng, 5)),
            ("@UID@", f"{rng.getrandbits(32):08x}-{number:04x}-4000-8000-{rng.getrandbits(48):012x}"[:40]),
            ("@RV@", str(1_000_000 + number)),
            ("@CREATED@", created),
            ("@STARTED@", started),
            ("@NODE@", nodes[number % len(nodes)] if nodes else made_up),
            ("@IP@", f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"),
            ("@CID@", f"{rng.getrandbits(256):064x}"),
        ):
            text = text.replace(mark, value)
        if own_claims:
            claim = f'{{"name":"data","persistentVolumeClaim":{{"claimName":"data-{number}"}}}}'
            text = text.replace('"volumes":[', f'"volumes":[{claim},', 1)
        yield text


def pod_pages(count: int, *, size: int = PAGE, **options: Any) -> Iterator[bytes]:
    """The same pods as the bodies of list answers."""
    batch: list[str] = []
    for text in pod_texts(count, **options):
        batch.append(text)
        if len(batch) == size:
            yield _page(batch)
            batch = []
    if batch:
        yield _page(batch)


def _page(texts: list[str]) -> bytes:
    head = '{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"2000000"},"items":['
    return f"{head}{','.join(texts)}]}}".encode()
