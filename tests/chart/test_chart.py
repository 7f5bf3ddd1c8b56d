"""The chart: valid Kubernetes, the program's own settings and rights, and safe defaults."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from scripts import chart_parts

from pykarpenter.cloud.permissions import Right, rights
from pykarpenter.controllers.permissions import needed_permissions
from pykarpenter.runtime.feature_gates import GATES, FeatureGates
from pykarpenter.runtime.plugins import load_plugin
from pykarpenter.runtime.settings import ALL_SETTINGS, Settings, load_settings

from .rendering import NAMESPACE, container, environment, objects, of_kind, render

GATE_VALUES = {f"{gate.name[0].lower()}{gate.name[1:]}": gate for gate in GATES}
ALL_GATES = {"settings": {"featureGates": dict.fromkeys(GATE_VALUES, True)}}
SPREAD = (
    "podTopologySpread:\n  defaultConstraints:\n  - {maxSkew: 1, topologyKey: a/b, whenUnsatisfiable: ScheduleAnyway}\n"
)
# Filled in by Kubernetes, or given on purpose only where somebody sets them.
NOT_RENDERED = {"MEMORY_LIMIT", "CPU_REQUESTS", "SCHEDULER_CONFIG", "DISABLE_CONTROLLER_WARMUP"}
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "all gates": ALL_GATES,
    "other kubelets": {"settings": {"kwokKubelets": "external"}},
    "default spread": {"settings": {"schedulerConfig": SPREAD}},
    "devices": {"settings": {"ignoreDRARequests": False}},
    "another lease": {"settings": {"leaderElectionName": "other"}},
    "everything set": {
        "fullnameOverride": "other",
        "additionalLabels": {"team": "a"},
        "additionalAnnotations": {"a": "b"},
        "imagePullSecrets": [{"name": "pull"}],
        "serviceAccount": {"annotations": {"role": "x"}},
        "podLabels": {"l": "1"},
        "podAnnotations": {"p": "1"},
        "hostNetwork": True,
        "extraVolumes": [{"name": "v", "emptyDir": {}}],
        "controller": {
            "image": {"tag": "1.2.3", "digest": "sha256:00"},
            "env": [{"name": "A", "value": "b"}],
            "envFrom": [{"secretRef": {"name": "s"}}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
        },
    },
}


def given_rights(found: list[dict[str, Any]]) -> tuple[set[Right], set[str]]:
    """What the rendered roles give, and every resource name in them."""
    given: set[Right] = set()
    names: set[str] = set()
    for role in found:
        if role["kind"] not in ("Role", "ClusterRole"):
            continue
        place = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            names.update(rule.get("resourceNames", ()))
            given |= {
                ("." if place == NAMESPACE else place, group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return given, names


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_object_is_valid_kubernetes(variant: str) -> None:
    """Checked against Kubernetes' own schemas, so that a typo fails here and not at the user's."""
    found = objects(VARIANTS[variant])
    assert {obj["kind"] for obj in found} >= {"Deployment", "ServiceAccount", "Service", "PodDisruptionBudget"}
    for obj in found:
        kubernetes_validate.validate(obj, "1.31", strict=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_roles_are_those_that_the_settings_need(variant: str) -> None:
    """The environment that the chart renders decides what the program does; its roles must follow it."""
    found = objects(VARIANTS[variant])
    plugin = load_plugin("kwok")
    settings, warnings = load_settings({}, environment(found), plugin.settings)
    assert warnings == []
    given, names = given_rights(found)
    assert given == set(rights(needed_permissions(settings, plugin.permissions(settings.provider))))
    assert settings.leader_election_name in names


def test_generated_parts_are_up_to_date() -> None:
    """Roles and CRDs come from the code: `scripts/chart_parts.py` writes them."""
    assert {path.name for path, text in chart_parts.files().items() if path.read_text() != text} == set()
    assert {path.name for path in (chart_parts.CHART / "crds").iterdir()} <= {path.name for path in chart_parts.files()}


def test_default_values_are_the_programs_defaults() -> None:
    """Two places that say what the default is must say the same."""
    settings, _ = load_settings({}, environment(objects()), load_plugin("kwok").settings)
    expected = Settings(
        karpenter_service="karpenter",
        leader_election_namespace=NAMESPACE,
        provider={item.flag: item.value_of_default for item in load_plugin("kwok").settings},
    )
    assert settings == expected


def test_every_setting_has_a_value() -> None:
    """A setting that only `controller.env` reaches would be found by nobody."""
    named = {item["name"] for item in container(objects(VARIANTS["default spread"]))["env"]}
    known = {item.env for item in (*ALL_SETTINGS, *load_plugin("kwok").settings)}
    assert known - named - NOT_RENDERED == {"INSTANCE_TYPES_FILE_PATH"}
    assert named - known == {"PYKARPENTER_PROVIDER", "SYSTEM_NAMESPACE"}


def test_every_gate_has_a_value_with_its_default() -> None:
    """An empty boolean would stop the program, as it does with Karpenter's KWOK chart."""
    gates = environment(objects())["FEATURE_GATES"].split(",")
    assert sorted(gates) == sorted(f"{gate.name}={str(gate.default).lower()}" for gate in GATES)
    settings, _ = load_settings({}, environment(objects(ALL_GATES)), load_plugin("kwok").settings)
    assert settings.feature_gates == FeatureGates(**{gate.field: True for gate in GATES})


def test_the_pod_is_locked_down() -> None:
    """Non-root, read-only, no capabilities, no escalation, the runtime's seccomp profile; probes on both endpoints."""
    found = objects()
    pod = of_kind(found, "Deployment")["spec"]["template"]["spec"]
    main = container(found)
    secured = main["securityContext"]
    assert secured["runAsNonRoot"] and secured["runAsUser"] > 0 and secured["readOnlyRootFilesystem"]
    assert secured["capabilities"] == {"drop": ["ALL"]} and not secured["allowPrivilegeEscalation"]
    assert secured["seccompProfile"] == pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert main["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert main["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert pod["priorityClassName"] == "system-cluster-critical"


def test_replicas_stay_off_managed_nodes_and_apart() -> None:
    """A controller on a node that it may delete would take itself away."""
    found = objects()
    deployment = of_kind(found, "Deployment")["spec"]
    affinity = deployment["template"]["spec"]["affinity"]
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"} in term["matchExpressions"]
    (apart,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"] == deployment["selector"]["matchLabels"]
    assert {"key": "CriticalAddonsOnly", "operator": "Exists"} in deployment["template"]["spec"]["tolerations"]
    assert deployment["replicas"] == 2
    assert of_kind(found, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_service_monitor_only_where_wanted() -> None:
    """Its kind exists only with the Prometheus operator."""
    assert not any(obj["kind"] == "ServiceMonitor" for obj in objects())
    wanted = {"enabled": True, "additionalLabels": {"release": "prometheus"}, "endpointConfig": {"interval": "15s"}}
    monitor = of_kind(objects({"serviceMonitor": wanted}), "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {"port": "http-metrics", "path": "/metrics", "interval": "15s"}


def test_unusual_values_reach_the_pod() -> None:
    """One replica with a name, network, side-car and ports of its own: what users have in a file already."""
    values = {
        "replicas": 1,
        "nameOverride": "scaler",
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "serviceAccount": {"create": False, "name": "existing"},
        "extraVolumes": [{"name": "tokens", "emptyDir": {}}],
        "topologySpreadConstraints": [],
        "controller": {
            "env": [{"name": "EXTRA", "value": "1"}],
            "envFrom": [{"secretRef": {"name": "credentials"}}],
            "metrics": {"port": 9000},
            "sidecarContainer": [{"name": "proxy", "image": "proxy:1"}],
            "sidecarVolumeMounts": [{"name": "tokens", "mountPath": "/tokens"}],
        },
    }
    found = objects(values)
    deployment = of_kind(found, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert (deployment["metadata"]["name"], deployment["spec"]["replicas"]) == ("karpenter-scaler", 1)
    assert (pod["hostNetwork"], pod["dnsPolicy"], pod["serviceAccountName"]) == (True, "Default", "existing")
    assert "topologySpreadConstraints" not in pod
    main, sidecar = pod["containers"]
    assert sidecar == {
        "name": "proxy",
        "image": "proxy:1",
        "volumeMounts": [{"name": "tokens", "mountPath": "/tokens"}],
    }
    assert main["envFrom"] == [{"secretRef": {"name": "credentials"}}]
    assert main["env"][-1] == {"name": "EXTRA", "value": "1"}
    assert main["ports"][0] == {"name": "http-metrics", "containerPort": 9000, "protocol": "TCP"}
    assert environment(found)["METRICS_PORT"] == "9000"
    assert of_kind(found, "Service")["spec"]["ports"][0]["port"] == 9000
    assert not any(obj["kind"] == "ServiceAccount" for obj in found)


@pytest.mark.parametrize("value", ["", "yes", "false", 1])
def test_a_gate_that_is_no_boolean_is_refused_with_its_name(value: object) -> None:
    """Rendered as it is, it would stop the controller, or give rights for a gate that is off."""
    with pytest.raises(AssertionError, match=r"settings\.featureGates\.nodeRepair: expected true or false"):
        render({"settings": {"featureGates": {"nodeRepair": value}}})


def test_image_is_installed_like_ci_and_runs_without_root() -> None:
    """One way of installing: what CI tested is what runs."""
    root = chart_parts.CHART.parents[1]
    dockerfile = (root / "Dockerfile").read_text()
    assert "RUN scripts/install /opt/pykarpenter run" in dockerfile
    assert "scripts/install $(VENV) dev" in (root / "Makefile").read_text()
    user = container(objects())["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in dockerfile
    locked = (root / "requirements" / "run.txt").read_text()
    assert "pytest" not in locked and "http" not in locked.replace("aiohttp", "")
