"""Runtime validation: what a schema cannot refuse is told with path, value and remedy."""

import msgspec
import pytest

from pykarpenter.api.extras import NodeOverlay
from pykarpenter.api.labels import WELL_KNOWN, LabelRules
from pykarpenter.api.nodepool import NodeClaim, NodePool
from pykarpenter.api.validation import ERROR, WARNING, validate_node_claim, validate_node_overlay, validate_node_pool

REF = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


def pool(*, labels=None, annotations=None, limits=None, disruption=None, name="p", **spec):
    template = {"spec": {"nodeClassRef": REF, "requirements": []} | spec}
    if labels is not None or annotations is not None:
        template["metadata"] = {"labels": labels or {}, "annotations": annotations or {}}
    body = {"metadata": {"name": name}, "spec": {"template": template, "limits": limits or {}}}
    if disruption is not None:
        body["spec"]["disruption"] = disruption
    return msgspec.convert(body, NodePool)


def problems(severity=ERROR, **fields):
    return [(p.path, p.value) for p in validate_node_pool(pool(**fields)) if p.severity == severity]


def need(key, operator, *values, **more):
    return {"key": key, "operator": operator, "values": list(values), **more}


def test_an_ordinary_pool_has_no_problems():
    """False alarms teach people to ignore alarms."""
    fields = {
        "labels": {"team": "a", "topology.kubernetes.io/zone": "z1", "karpenter.sh/capacity-type": "spot"},
        "limits": {"cpu": 1000, "memory": "4Ti", "nodes": "50", "nvidia.com/gpu": 8},
        "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "a", "effect": "NoExecute"}],
        "requirements": [
            need("kubernetes.io/arch", "In", "amd64", "arm64"),
            need("karpenter.sh/capacity-type", "In", "spot", "on-demand", minValues=2),
            need("example.com/generation", "Gt", "2"),
            need("kubernetes.io/os", "Exists"),
        ],
        "expireAfter": "Never",
        "terminationGracePeriod": "48h",
        "disruption": {"consolidateAfter": "0s"},
    }
    assert validate_node_pool(pool(**fields)) == []


@pytest.mark.promise("API-2.1")
@pytest.mark.parametrize(
    "key", ["karpenter.sh/custom", "sub.karpenter.sh/custom", "karpenter.sh/registered", "kubernetes.io/hostname"]
)
def test_b7_reserved_labels_are_refused_with_alternatives(key):
    """Both as template label and as requirement, with what may be used instead."""
    (found,) = validate_node_pool(pool(labels={key: "x"}))
    assert (found.path, found.value) == (f"spec.template.metadata.labels.{key}", key)
    assert "label of your own domain" in found.message
    assert problems(requirements=[need(key, "Exists")]) == [("spec.template.spec.requirements[0].key", key)]


def test_b7_reserved_domain_names_its_open_keys():
    """The user wanted something; the nearest allowed key is the remedy."""
    (found,) = validate_node_pool(pool(labels={"karpenter.sh/custom": "x"}))
    assert "karpenter.sh/capacity-type" in found.message


def test_b7_pool_label_is_refused_in_templates_and_requirements():
    """The controller sets it; another value would orphan the node."""
    key = "karpenter.sh/nodepool"
    assert problems(labels={key: "x"}) == [(f"spec.template.metadata.labels.{key}", "x")]
    assert problems(requirements=[need(key, "In", "x")]) == [("spec.template.spec.requirements[0].key", key)]


@pytest.mark.promise("API-2.1")
@pytest.mark.parametrize(
    "key", ["kubernetes.io/arch", "node.kubernetes.io/x", "k8s.io/x", "notkarpenter.sh/x", "plain"]
)
def test_other_domains_are_open(key):
    """kubernetes.io and k8s.io are not reserved, whatever one might expect."""
    assert problems(labels={key: "x"}) == []


@pytest.mark.promise("API-2.1")
def test_provider_domains_are_reserved_except_their_well_known_labels():
    """A provider's rules are passed in, they are not global."""
    rules = LabelRules(WELL_KNOWN | {"karpenter.kwok.sh/instance-cpu"}, ("karpenter.sh", "karpenter.kwok.sh"))
    good = pool(requirements=[need("karpenter.kwok.sh/instance-cpu", "Gt", "1")])
    bad = pool(requirements=[need("karpenter.kwok.sh/own", "Exists")])
    assert validate_node_pool(good, rules) == []
    assert "karpenter.kwok.sh/instance-cpu" in validate_node_pool(bad, rules)[0].message


@pytest.mark.promise("API-2.2")
def test_old_keys_are_read_as_their_stable_names():
    """`beta.kubernetes.io/arch` is as good as `kubernetes.io/arch`."""
    assert problems(requirements=[need("beta.kubernetes.io/arch", "In", "amd64")]) == []


def test_b8_duplicate_taint_is_named_with_both_places():
    """Same key and effect, in either list or across both; another effect or value is not a duplicate of the key."""
    taint = {"key": "a", "value": "x", "effect": "NoSchedule"}
    (found,) = validate_node_pool(pool(taints=[taint], startupTaints=[taint | {"value": "y"}]))
    assert (found.path, found.value) == ("spec.template.spec.startupTaints[0]", "a:NoSchedule")
    assert "spec.template.spec.taints[0]" in found.message
    assert len(problems(taints=[taint, taint, taint | {"effect": "NoExecute"}])) == 1


@pytest.mark.parametrize(
    ("taint", "path"),
    [
        ({"key": "a b", "effect": "NoSchedule"}, "key"),
        ({"key": "a", "value": "b c", "effect": "NoSchedule"}, "value"),
        ({"key": "a", "effect": "Sometimes"}, "effect"),
    ],
)
def test_taint_parts_are_checked(taint, path):
    """Objects from files have not passed a schema."""
    assert [where for where, _ in problems(taints=[taint])] == [f"spec.template.spec.taints[0].{path}"]


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (need("a", "In"), "values"),
        (need("a", "Gt", "1", "2"), "values"),
        (need("a", "Lt", "many"), "values"),
        (need("a", "Gte", "9" * 30), "values"),
        (need("a", "Lte"), "values"),
        (need("a", "Like", "x"), "operator"),
        (need("a b", "Exists"), "key"),
        (need("x" * 64, "Exists"), "key"),
        (need("a", "In", "b c"), "values[0]"),
        (need("a", "In", "x" * 64), "values[0]"),
        (need("a", "In", "x", minValues=2), "minValues"),
    ],
)
def test_b5_bad_requirement_is_named_by_index(item, path):
    """Lists of requirements are long; the index saves the search."""
    good = need("kubernetes.io/arch", "Exists")
    assert [where for where, _ in problems(requirements=[good, item])] == [f"spec.template.spec.requirements[1].{path}"]


def test_capacity_type_needs_a_known_value():
    """A pool that only allows `on_demand` would never launch anything."""
    key = "karpenter.sh/capacity-type"
    path = "spec.template.spec.requirements[0]"
    assert problems(requirements=[need(key, "In", "on_demand")]) == [(f"{path}.values", ["on_demand"])]
    assert problems(requirements=[need(key, "In", "spot", "odd", minValues=2)]) == [(f"{path}.minValues", 2)]
    assert problems(requirements=[need(key, "In", "spot", "odd")]) == []
    assert problems(WARNING, requirements=[need(key, "In", "spot", "odd")]) == [(f"{path}.values", ["odd"])]


@pytest.mark.parametrize("amount", ["abc", "-1", "1 Gi", -3])
def test_b10_bad_limits_are_refused(amount):
    """A negative limit could never be met."""
    assert problems(limits={"cpu": amount}) == [("spec.limits.cpu", amount)]


@pytest.mark.parametrize("name", ["cpus", "gpu", "ram"])
def test_b10_limit_that_never_binds_is_a_warning(name):
    """A typing error in a limit is found on the bill otherwise."""
    assert problems(limits={name: "5"}) == []
    assert problems(WARNING, limits={name: "5"}) == [(f"spec.limits.{name}", name)]


@pytest.mark.parametrize("expiry", ["0s", "30s", "10m"])
def test_b11_short_expiry_warns_of_churn(expiry):
    """Nodes would be replaced as soon as they are ready."""
    assert problems(expireAfter=expiry) == []
    assert problems(WARNING, expireAfter=expiry) == [("spec.template.spec.expireAfter", expiry)]


def test_b11_consolidation_after_a_few_seconds_warns_of_churn():
    """0s is Karpenter's default and means no waiting; a few seconds are a misunderstanding."""
    assert problems(WARNING, disruption={"consolidateAfter": "5s"}) == [("spec.disruption.consolidateAfter", "5s")]
    assert problems(WARNING, disruption={"consolidateAfter": "0s"}) == []
    assert problems(WARNING, disruption={"consolidateAfter": "1m"}) == []


def test_consolidation_pause_that_cannot_be_read_is_a_warning():
    """The schema's pattern allows any number; consolidation stops, launches go on."""
    forever = {"consolidateAfter": "99999999999999999h"}
    assert problems(disruption=forever) == []
    (path, value) = problems(WARNING, disruption=forever)[0]
    assert (path, value) == ("spec.disruption.consolidateAfter", "99999999999999999h")
    assert problems(WARNING, disruption={"consolidateAfter": "Never"}) == []


@pytest.mark.parametrize("key", ["bad key!", "a/b/c", "", "x" * 64])
def test_annotations_need_keys_that_an_api_server_accepts(key):
    """It would refuse every NodeClaim of the pool, and pods would wait for ever."""
    assert problems(annotations={key: "x"}) == [(f"spec.template.metadata.annotations.{key}", key)]


def test_annotations_may_have_capitals_and_any_value():
    """Their keys are compared without case, and values are free text."""
    assert problems(annotations={"Example.COM/Note": "any text, really"}) == []


def test_pool_name_must_fit_into_a_label():
    """Nodes carry it as the value of karpenter.sh/nodepool."""
    assert problems(name="x" * 63) == []
    assert problems(name="x" * 64) == [("metadata.name", "x" * 64)]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"nodeClassRef": {"group": "", "kind": "K", "name": "n"}}, "nodeClassRef.group"),
        ({"expireAfter": "30d"}, "expireAfter"),
        ({"terminationGracePeriod": "-5m"}, "terminationGracePeriod"),
    ],
)
def test_references_and_durations_are_checked(fields, path):
    """Objects from files have not passed a schema."""
    assert [where for where, _ in problems(**fields)] == [f"spec.template.spec.{path}"]


def test_all_problems_are_told_at_once():
    """One round trip per mistake is a waste of an afternoon."""
    found = problems(
        labels={"karpenter.sh/x": "y"},
        limits={"cpu": "-1"},
        taints=[{"key": "a", "effect": "X"}],
        requirements=[need("a", "In"), need("b", "Gt", "x")],
    )
    assert len(found) == 5


def test_claims_may_require_their_pool():
    """Outside NodePools `karpenter.sh/nodepool` is an ordinary requirement."""
    body = {"spec": {"nodeClassRef": REF, "requirements": [need("karpenter.sh/nodepool", "In", "p"), need("a", "In")]}}
    assert [p.path for p in validate_node_claim(msgspec.convert(body, NodeClaim))] == ["spec.requirements[1].values"]


def test_overlays_are_checked_alike():
    """Prices, forbidden resources and requirements."""
    spec = {
        "requirements": [need("kubernetes.io/hostname", "Exists")],
        "price": "x",
        "priceAdjustment": "+5%",
        "capacity": {"cpu": "4", "example.com/x": "q"},
    }
    found = [p.path for p in validate_node_overlay(msgspec.convert({"spec": spec}, NodeOverlay))]
    assert found == [
        "spec.requirements[0].key",
        "spec.capacity.example.com/x",
        "spec.price",
        "spec.capacity.cpu",
    ]


def test_warning_does_not_call_the_value_invalid():
    """It is allowed, and only probably not meant."""
    (found,) = validate_node_pool(pool(limits={"gpu": "5"}))
    assert found.text().startswith('spec.limits.gpu: "gpu" is no resource that nodes have')


def test_problem_reads_as_one_line():
    """The same text goes into condition, event, log and `pykarpenter validate`."""
    (found,) = validate_node_pool(pool(requirements=[need("a", "In")]))
    assert found.text() == (
        "spec.template.spec.requirements[0].values: invalid value []: "
        "operator In needs at least one value; use Exists to accept any value"
    )
