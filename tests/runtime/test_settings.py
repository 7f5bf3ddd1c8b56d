"""Settings: the environment of a Karpenter Deployment starts us; anything unreadable is refused, all at once."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pykarpenter.cloud.plugin import Setting
from pykarpenter.cloud.provider import NodeClassKind, ProviderTraits
from pykarpenter.runtime.feature_gates import GATES, FeatureGates
from pykarpenter.runtime.setting_values import choice
from pykarpenter.runtime.settings import ALL_SETTINGS, KARPENTER_SETTINGS, BadSettings, Settings, load_settings

SPREAD = """
podTopologySpread:
  defaultConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
"""


def problems_of(flags: dict[str, str], env: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        load_settings(flags, env or {})
    return list(caught.value.problems)


@pytest.mark.promise("API-7.1")
def test_every_setting_has_a_field_with_the_documented_default() -> None:
    """A row added to the table but not to the values, or the other way round, would be silently ignored."""
    defaults = Settings()
    assert {item.flag.replace("-", "_") for item in ALL_SETTINGS} == {
        item.name for item in fields(Settings) if item.name != "provider"
    }
    for item in ALL_SETTINGS:
        assert item.value_of_default == getattr(defaults, item.flag.replace("-", "_")), item.flag
    assert {gate.field: gate.default for gate in GATES} == {
        item.name: getattr(FeatureGates(), item.name) for item in fields(FeatureGates) if item.name != "unknown"
    }


@pytest.mark.promise("API-7.1")
def test_every_variable_of_karpenter_at_its_default_is_accepted_without_a_warning() -> None:
    env = {item.env: item.default for item in KARPENTER_SETTINGS}
    assert load_settings({}, env) == (Settings(), [])


@pytest.mark.promise("API-7.2")
def test_flag_beats_environment() -> None:
    settings, _ = load_settings({"log-level": "debug"}, {"LOG_LEVEL": "error", "BATCH_MAX_DURATION": "1m30s"})
    assert (settings.log_level, settings.batch_max_duration) == ("debug", 90.0)


@pytest.mark.promise("API-7.3")
def test_b37_all_bad_settings_are_reported_at_once() -> None:
    """An operator who fixes one line per restart wastes an evening."""
    problems = problems_of(
        {"metrics-port": "http", "no-such-flag": "1"},
        {"BATCH_IDLE_DURATION": "soon", "FEATURE_GATES": "NodeRepair=,StaticCapacity=maybe", "LOG_LEVEL": "loud"},
    )
    assert [problem.split(":")[0] for problem in problems] == [
        "--metrics-port",
        "LOG_LEVEL",
        "BATCH_IDLE_DURATION",
        "FEATURE_GATES",
        "--no-such-flag",
    ]
    assert "expected one of debug, info, error, got 'loud'" in problems[1]
    assert "NodeRepair" in problems[3] and "StaticCapacity" in problems[3]


@pytest.mark.promise("API-7.3")
def test_b37_unknown_gates_and_misspelt_variables_give_one_warning_each_kind() -> None:
    env = {
        "FEATURE_GATES": "Drift=true,NodeRepair=true",
        "BATCH_MAX_DURATON": "1s",
        "LOG_LEVELS": "debug",
        "HOME": "/",
        "KARPENTER_SERVICE_HOST": "10.0.0.1",
        "METRICS_PORT_8080_TCP": "tcp://10.0.0.1:8080",
    }
    settings, warnings = load_settings({}, env)
    assert settings.feature_gates == FeatureGates(node_repair=True, unknown=("Drift",))
    assert len(warnings) == 2
    assert "Drift" in warnings[0]
    assert "BATCH_MAX_DURATON (did you mean BATCH_MAX_DURATION?)" in warnings[1] and "LOG_LEVELS" in warnings[1]
    assert "SERVICE_HOST" not in warnings[1] and "8080" not in warnings[1]


@pytest.mark.promise("API-7.3")
def test_b37_settings_of_another_provider_give_one_warning() -> None:
    """The environment of Karpenter's AWS chart starts us; what it sets for AWS alone is named once."""
    env = {"CLUSTER_NAME": "prod", "INTERRUPTION_QUEUE": "prod", "CLUSTER_ENDPOINT": "", "AWS_REGION": "eu-west-1"}
    assert load_settings({}, env)[1] == ["settings of another provider are ignored: CLUSTER_NAME, INTERRUPTION_QUEUE"]
    own = (Setting("cluster-name", "CLUSTER_NAME", "", ""),)
    assert load_settings({}, {"CLUSTER_NAME": "prod"}, own)[1] == []


@pytest.mark.promise("API-7.4")
@pytest.mark.parametrize(
    ("variable", "values"),
    [
        ("METRICS_PORT", ["8_080", " 8080", "８０８０", "0x10", "8080.0", "65536", "-1", "9" * 50, "8080\n"]),
        ("KUBE_CLIENT_QPS", ["0", "-5", "1e3", "inf", "9223372036854775808"]),
        ("ENABLE_PROFILING", ["yes", "on", "tRUE", " true", "2", "True "]),
        ("BATCH_MAX_DURATION", ["10", "10 s", "1d", "s", ".s", "-1s", "1h-1m", "١s", "1e3s", "Never", "5mins"]),
        ("MEMORY_LIMIT", ["1Gi", "-2", "1.5"]),
        ("CPU_REQUESTS", ["500m", "1.5"]),
        ("LOG_LEVEL", ["INFO", "warn", "Debug"]),
        ("PREFERENCE_POLICY", ["respect", "IGNORE"]),
        ("MIN_VALUES_POLICY", ["Besteffort", "strict"]),
        ("LOG_OUTPUT_PATHS", [",", " "]),
        ("FEATURE_GATES", ["NodeRepair", "NodeRepair=yes", "NodeRepair=", "=", "NodeRepair=true;StaticCapacity=true"]),
    ],
)
def test_b37_values_that_go_would_not_read_are_refused(variable: str, values: list[str]) -> None:
    """A value that one of the two programs reads and the other does not would be a surprise on the day of the move."""
    for value in values:
        (problem,) = problems_of({}, {variable: value})
        assert problem.startswith(f"{variable}: ") and problem.endswith(f"got {value!r}"), problem


@pytest.mark.promise("API-7.4")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("+1.5s", 1.5), (".5m", 30.0), ("1h2m3.5s", 3723.5), ("100ms", 0.1), ("1.s", 1.0), ("5µs", 5e-6)],
)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert load_settings({}, {"BATCH_MAX_DURATION": text})[0].batch_max_duration == seconds


def test_an_empty_variable_counts_as_unset() -> None:
    """Charts render unset values as empty strings."""
    assert load_settings({}, {"METRICS_PORT": "", "FEATURE_GATES": ""})[0] == Settings()


@pytest.mark.promise("API-7.4")
@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_booleans_are_read_as_go_reads_them(text: str) -> None:
    assert load_settings({}, {"ENABLE_PROFILING": text})[0].enable_profiling is True


@pytest.mark.promise("API-7.5")
def test_gates_that_are_not_named_keep_their_defaults() -> None:
    gates = load_settings({"feature-gates": "SpotToSpotConsolidation=true"}, {})[0].feature_gates
    assert gates.spot_to_spot_consolidation and gates.reserved_capacity and not gates.node_repair


def test_terminate_first_repair_without_node_repair_is_pointed_out() -> None:
    assert "NodeRepair" in load_settings({"feature-gates": "TerminateFirstRepair=true"}, {})[1][0]


def test_non_positive_cpu_requests_become_one_core() -> None:
    assert load_settings({"cpu-requests": "-5"}, {})[0].cpu_requests == 1000


@pytest.mark.promise("API-7.6")
def test_scheduler_config_gives_default_constraints() -> None:
    constraint = load_settings({}, {"SCHEDULER_CONFIG": SPREAD})[0].scheduler_config[0]
    assert (constraint.max_skew, constraint.when_unsatisfiable) == (1, "ScheduleAnyway")
    assert constraint.topology_key == "topology.kubernetes.io/zone"


@pytest.mark.promise("API-7.6")
@pytest.mark.parametrize(
    ("document", "path"),
    [
        ("profiles: []", "profiles"),
        ("podTopologySpread: {constraints: []}", "podTopologySpread.constraints"),
        ("[1, 2]", "document"),
        ("a: b: c", "neither YAML nor JSON"),
        (SPREAD.replace("maxSkew: 1", "maxSkew: 0"), "defaultConstraints[0].maxSkew"),
        (SPREAD.replace("topology.kubernetes.io/zone", "'!!'"), "defaultConstraints[0].topologyKey"),
        (SPREAD.replace("ScheduleAnyway", "Maybe"), "defaultConstraints[0].whenUnsatisfiable"),
        (SPREAD + "    labelSelector: {matchLabels: {a: b}}\n", "defaultConstraints[0].labelSelector"),
        (SPREAD + "    matchLabelKeys: [a]\n", "defaultConstraints[0].matchLabelKeys"),
        (SPREAD + "    weight: 3\n", "defaultConstraints[0].weight"),
        (SPREAD + "    labelSelector: {}\n", "defaultConstraints[0].labelSelector"),
        (SPREAD + "    maxSkew: 2\n", "the key 'maxSkew' is written twice"),
        ('{"podTopologySpread": {}, "podTopologySpread": {}}', "the key 'podTopologySpread' is written twice"),
        (SPREAD.replace("maxSkew: 1", "maxSkew: true"), "defaultConstraints[0].maxSkew"),
        (SPREAD.replace("maxSkew: 1", "maxSkew: 1.0"), "defaultConstraints[0].maxSkew"),
        (SPREAD + "    minDomains: 2\n", "defaultConstraints[0].minDomains"),
        (f"{SPREAD}---{SPREAD}", "single document"),
        (SPREAD + SPREAD.split("Constraints:\n")[1], "defaultConstraints[1]: duplicate"),
    ],
)
def test_scheduler_config_that_is_not_understood_refuses_the_start(document: str, path: str) -> None:
    """A constraint silently dropped would spread workloads differently from what the operator wrote."""
    (problem,) = problems_of({"scheduler-config": document})
    assert problem.startswith("--scheduler-config: ") and path in problem


def test_a_providers_own_settings_join_the_table() -> None:
    own = (Setting("kwok-kubelets", "KWOK_KUBELETS", "builtin", "", choice("builtin", "external")),)
    assert load_settings({}, {"KWOK_KUBELETS": "external"}, own)[0].provider == {"kwok-kubelets": "external"}
    with pytest.raises(BadSettings, match="KWOK_KUBELETS: expected one of builtin, external, got 'none'"):
        load_settings({}, {"KWOK_KUBELETS": "none"}, own)


def test_packing_settings_follow_settings_and_provider() -> None:
    settings, _ = load_settings({"preference-policy": "Ignore", "packing-effort": "off"}, {"SCHEDULER_CONFIG": SPREAD})
    traits = ProviderTraits("kwok", (NodeClassKind("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "k"),))
    packing = settings.packing(traits)
    assert (packing.preference_policy, packing.effort, len(packing.default_spread)) == ("Ignore", "off", 1)
    assert packing.managed_class_kinds == {("karpenter.kwok.sh", "KWOKNodeClass")}


def test_nomination_lasts_two_batches_and_at_least_ten_seconds() -> None:
    assert Settings().nomination_s == 20.0
    assert Settings(batch_max_duration=2.0).nomination_s == 10.0


@pytest.mark.promise("API-7.7")
@pytest.mark.parametrize(
    ("millicores", "lifecycle", "others"),
    [(1000, 1000, 10), (500, 1000, 10), (30_500, 3000, 505), (90_000, 5000, 1000)],
)
def test_concurrency_follows_the_processor(millicores: int, lifecycle: int, others: int) -> None:
    """A large installation gives the controller more cores and expects more to happen at once."""
    settings = Settings(cpu_requests=millicores)
    assert (settings.workers(1000, 5000), settings.workers(10, 1000)) == (lifecycle, others)
    assert settings.workers(10, 10) == 10
