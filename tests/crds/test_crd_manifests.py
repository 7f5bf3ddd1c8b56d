"""The CRD manifests: complete, in Karpenter's shape, and no rule without its two cases."""

import json
import subprocess
import sys

import pytest
import yaml

from pykarpenter.api.crds import crds
from tests.crds.cases import all_cases
from tests.crds.rules import rules_of

CRDS = {crd["spec"]["names"]["plural"]: crd for crd in crds()}
CASES = all_cases(list(CRDS.values()))


@pytest.mark.promise("API-1.1.1")
def test_every_rule_has_an_accepted_and_a_refused_case():
    """A rule that nobody tried on both sides may refuse everything or nothing."""
    rules = {rule for crd in CRDS.values() for rule in rules_of(crd)}
    covered = {case.rule for case in CASES}
    assert sorted(rules - covered) == []
    assert sorted(covered - rules) == []


@pytest.mark.promise("API-1.1.3")
@pytest.mark.parametrize(
    ("plural", "group", "version", "scope", "category", "short_names"),
    [
        ("nodepools", "karpenter.sh", "v1", "Cluster", "karpenter", None),
        ("nodeclaims", "karpenter.sh", "v1", "Cluster", "karpenter", None),
        ("nodeoverlays", "karpenter.sh", "v1alpha1", "Cluster", "karpenter", ["overlays"]),
        ("capacitybuffers", "autoscaling.x-k8s.io", "v1beta1", "Namespaced", "autoscaling", ["cb"]),
        ("kwoknodeclasses", "karpenter.kwok.sh", "v1alpha1", "Cluster", "karpenter", ["kwoknc", "kwokncs"]),
    ],
)
def test_kinds_are_named_as_in_karpenter(plural, group, version, scope, category, short_names):
    """Manifests, RBAC rules and fingers that know Karpenter must find the same names."""
    crd = CRDS[plural]
    assert crd["metadata"]["name"] == f"{plural}.{group}"
    assert crd["spec"]["scope"] == scope
    assert crd["spec"]["names"]["categories"] == [category]
    assert crd["spec"]["names"].get("shortNames") == short_names
    assert [found["name"] for found in crd["spec"]["versions"]] == [version]
    assert "status" in crd["spec"]["versions"][0]["subresources"]


@pytest.mark.promise("API-1.1.3")
@pytest.mark.parametrize(
    ("plural", "usual", "wide"),
    [
        ("nodepools", ["NodeClass", "Nodes", "Ready", "Age"], ["Weight", "CPU", "Memory"]),
        (
            "nodeclaims",
            ["Type", "Capacity", "Zone", "Node", "Ready", "Age"],
            ["ImageID", "ID", "NodePool", "NodeClass", "Drifted"],
        ),
        ("nodeoverlays", ["Ready", "Age"], ["Weight"]),
        (
            "capacitybuffers",
            ["Strategy", "PodTemplate", "Replicas", "ConditionsType", "ConditionsStatus", "ConditionsReason", "Age"],
            [],
        ),
        ("kwoknodeclasses", [], []),
    ],
)
def test_printer_columns_are_karpenters(plural, usual, wide):
    """People read these tables every day."""
    columns = CRDS[plural]["spec"]["versions"][0].get("additionalPrinterColumns", [])
    assert [column["name"] for column in columns if not column.get("priority")] == usual
    assert [column["name"] for column in columns if column.get("priority") == 1] == wide


@pytest.mark.promise("API-1.1.3")
def test_only_node_pools_scale():
    """`kubectl scale nodepool` sets a static pool's size; there is no selector to follow."""
    assert {plural: crd["spec"]["versions"][0]["subresources"].get("scale") for plural, crd in CRDS.items()} == {
        "nodepools": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"},
        "nodeclaims": None,
        "nodeoverlays": None,
        "capacitybuffers": None,
        "kwoknodeclasses": None,
    }


def test_every_field_is_described():
    """`kubectl explain` is the manual that is always at hand."""

    def undescribed(schema, path):
        for name, child in schema.get("properties", {}).items():
            if name != "metadata" and "description" not in child:
                yield f"{path}.{name}"
            yield from undescribed(child, f"{path}.{name}")
        if "items" in schema:
            yield from undescribed(schema["items"], f"{path}[]")

    for plural, crd in CRDS.items():
        assert list(undescribed(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], plural)) == []


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "pykarpenter.cli", "crds", *arguments], capture_output=True, text=True)


def test_crds_command_prints_the_same_manifests_as_yaml_and_json():
    """`pykarpenter crds | kubectl apply -f -` is the installation."""
    assert list(yaml.safe_load_all(run().stdout)) == list(CRDS.values())
    assert json.loads(run("--provider", "kwok", "-o", "json").stdout)["items"] == list(CRDS.values())


def test_crds_command_refuses_an_unknown_provider_by_name():
    """The remedy is the list of known ones."""
    out = run("--provider", "nimbus")
    assert out.returncode == 1
    assert "nimbus" in out.stderr and "kwok" in out.stderr
