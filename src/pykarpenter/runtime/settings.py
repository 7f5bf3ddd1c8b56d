"""Every setting of the program: one table of flags, environment variables and defaults, and the parsed values.

The environment block of an existing Karpenter Deployment is accepted as it is. A known setting that cannot be read
refuses the start, with all problems at once (Karpenter falls back to the default in silence); what is merely unknown
gives one warning. An empty environment variable counts as unset, as a Deployment's `value: ""` means it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pykarpenter.api.pods import TopologySpreadConstraint
from pykarpenter.cloud.plugin import Setting
from pykarpenter.cloud.provider import ProviderTraits
from pykarpenter.core.disruption.settings import DisruptionSettings
from pykarpenter.core.packing_settings import PackingSettings
from pykarpenter.core.repair import RepairRules
from pykarpenter.runtime.concurrency import workers
from pykarpenter.runtime.feature_gates import DEFAULT_TEXT, FeatureGates, parse_feature_gates
from pykarpenter.runtime.scheduler_config import parse_scheduler_config
from pykarpenter.runtime.setting_values import choice, duration, integer, parse_bool, path_list, price

_PORT = integer(0, 65535)


def _switch(flag: str, default: bool, help_text: str) -> Setting:
    return _setting(flag, str(default).lower(), help_text, parse_bool, is_switch=True)


def _setting(flag: str, default: str, help_text: str, parse: Any = str, is_switch: bool = False) -> Setting:
    return Setting(flag, flag.upper().replace("-", "_"), default, help_text, parse, is_switch)


def _cpu_requests(text: str) -> int:
    value = integer()(text)
    return value if value > 0 else 1000


KARPENTER_SETTINGS: tuple[Setting, ...] = (
    _setting("karpenter-service", "", "name of the Service in front of the program"),
    _setting("metrics-port", "8080", "port of /metrics", _PORT),
    _setting("health-probe-port", "8081", "port of /healthz and /readyz", _PORT),
    _setting("kube-client-qps", "200", "requests per second to the API server, smoothed", integer(1)),
    _setting("kube-client-burst", "300", "requests that may go out at once", integer(1)),
    _switch("enable-profiling", False, "serve /debug on the metrics port"),
    _switch("disable-controller-warmup", True, "start controllers only once this process leads"),
    _switch("disable-leader-election", False, "lead without a Lease; only for a single replica"),
    _switch(
        "disable-cluster-state-observability",
        False,
        "drop pod, node, nodepool and status-condition metrics and condition events",
    ),
    _setting("leader-election-name", "karpenter-leader-election", "name of the Lease"),
    _setting("leader-election-namespace", "", "namespace of the Lease; empty is the program's own"),
    _setting("memory-limit", "-1", "memory in bytes that bounds caches; -1 is unbounded", integer(-1)),
    _setting("cpu-requests", "1000", "millicores of the container; drives concurrency", _cpu_requests),
    _setting("log-level", "info", "debug, info or error", choice("debug", "info", "error")),
    _setting("log-output-paths", "stdout", "where logs go, comma-separated", path_list),
    _setting("log-error-output-paths", "stderr", "where errors of the logger itself go, comma-separated", path_list),
    _setting("batch-max-duration", "10s", "the longest wait for more pods before planning", duration),
    _setting("batch-idle-duration", "1s", "planning starts when no new pod came for this long", duration),
    _setting("preference-policy", "Respect", "Respect or Ignore preferences of pods", choice("Respect", "Ignore")),
    _setting("min-values-policy", "Strict", "Strict or BestEffort minValues", choice("Strict", "BestEffort")),
    _switch("ignore-dra-requests", True, "leave pods with resource claims alone"),
    _switch("legacy-node-repair", False, "with gate NodeRepair: the repair of Karpenter 1.14"),
    _setting("feature-gates", DEFAULT_TEXT, "Name=bool pairs, comma-separated", parse_feature_gates),
    _setting(
        "scheduler-config",
        "",
        "YAML or JSON with podTopologySpread.defaultConstraints",
        parse_scheduler_config,
    ),
)

OWN_SETTINGS: tuple[Setting, ...] = (
    _setting(
        "packing-effort",
        "normal",
        "how hard to search for cheaper plans: off, normal or thorough",
        choice("off", "normal", "thorough"),
    ),
    _switch("cross-pool-cost", False, "let a cheaper pool win over a heavier one"),
    _setting(
        "consolidation-search",
        "compatible",
        "compatible takes what Karpenter's search finds; best looks further and takes the best command found",
        choice("compatible", "best"),
    ),
    _setting(
        "consolidation-replacements",
        "one",
        "replacements of one consolidation: one, or many",
        choice("one", "many"),
    ),
    _setting("min-saving", "0", "$/h below which consolidation does not act; 0 is off", price),
    _setting("eviction-price", "0.001", "$/h that a displaced pod weighs against a saving", price),
    _switch(
        "protect-unparsable-do-not-disrupt",
        False,
        "protect pods whose do-not-disrupt value cannot be parsed",
    ),
    _switch(
        "nominate-pods",
        True,
        "open machines together and name each in status.nominatedNodeName of its pods, so that others leave them room",
    ),
    _switch("dry-run", False, "decide and report everything, do nothing; needs and takes no lease"),
)

ALL_SETTINGS = KARPENTER_SETTINGS + OWN_SETTINGS

# Set by charts and platforms beside our settings; never worth a warning.
_FOREIGN = frozenset({"KUBERNETES_MIN_VERSION", "SYSTEM_NAMESPACE", "KUBECONFIG", "HOSTNAME"})
# Set by the chart of Karpenter's AWS provider; with another provider they do nothing, which is worth one line.
_OF_AWS = frozenset(
    {
        "ASSUME_ROLE_ARN",
        "ASSUME_ROLE_DURATION",
        "CLUSTER_CA_BUNDLE",
        "CLUSTER_ENDPOINT",
        "CLUSTER_NAME",
        "EKS_CONTROL_PLANE",
        "INTERRUPTION_QUEUE",
        "ISOLATED_VPC",
        "RESERVED_ENIS",
        "VM_MEMORY_OVERHEAD_PERCENT",
    }
)
# What Kubernetes injects for each Service of the namespace; `X_PORT` has a URL as its value.
_SERVICE_LINK = re.compile(r".*(_SERVICE_HOST|_SERVICE_PORT.*|_PORT_\d+_.*)")


@dataclass(frozen=True, slots=True)
class Settings:
    """Parsed values; each field is the flag of the same name, durations in seconds."""

    karpenter_service: str = ""
    metrics_port: int = 8080
    health_probe_port: int = 8081
    kube_client_qps: int = 200
    kube_client_burst: int = 300
    enable_profiling: bool = False
    disable_controller_warmup: bool = True
    disable_leader_election: bool = False
    disable_cluster_state_observability: bool = False
    leader_election_name: str = "karpenter-leader-election"
    leader_election_namespace: str = ""
    memory_limit: int = -1
    cpu_requests: int = 1000
    log_level: str = "info"
    log_output_paths: tuple[str, ...] = ("stdout",)
    log_error_output_paths: tuple[str, ...] = ("stderr",)
    batch_max_duration: float = 10.0
    batch_idle_duration: float = 1.0
    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"
    ignore_dra_requests: bool = True
    legacy_node_repair: bool = False
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    scheduler_config: tuple[TopologySpreadConstraint, ...] = ()
    packing_effort: str = "normal"
    cross_pool_cost: bool = False
    consolidation_search: str = "compatible"
    consolidation_replacements: str = "one"
    min_saving: float = 0.0
    eviction_price: float = 0.001
    protect_unparsable_do_not_disrupt: bool = False
    nominate_pods: bool = True
    dry_run: bool = False
    # The provider's own settings by flag name.
    provider: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nomination_s(self) -> float:
        """How long a node is kept for pods that were planned onto it."""
        return max(2 * self.batch_max_duration, 10.0)

    def workers(self, fewest: int, most: int) -> int:
        """How many keys at once a controller with that range may work on."""
        return workers(fewest, most, self.cpu_requests)

    def packing(self, traits: ProviderTraits) -> PackingSettings:
        """What of the settings and the provider a packing decision needs."""
        return PackingSettings(
            preference_policy=self.preference_policy,
            min_values_policy=self.min_values_policy,
            ignore_dra_requests=self.ignore_dra_requests,
            reserved_capacity=self.feature_gates.reserved_capacity,
            default_spread=self.scheduler_config,
            effort=self.packing_effort,
            cross_pool_cost=self.cross_pool_cost,
            label_rules=traits.label_rules,
            reservation_id_label=traits.reservation_id_label,
            managed_class_kinds=frozenset((kind.group, kind.kind) for kind in traits.node_classes),
            unsupported_csi_drivers=traits.unsupported_csi_drivers,
        )

    def disruption(self, traits: ProviderTraits) -> DisruptionSettings:
        """What of the settings and the provider a disruption decision needs."""
        gates = self.feature_gates
        repairs = gates.node_repair and not self.legacy_node_repair
        return DisruptionSettings(
            spot_to_spot=gates.spot_to_spot_consolidation,
            node_repair=repairs,
            terminate_first_drift=gates.terminate_first_drift,
            terminate_first_repair=gates.terminate_first_repair,
            pod_deletion_cost=gates.pod_deletion_cost_management,
            protect_unparsable=self.protect_unparsable_do_not_disrupt,
            min_values_policy=self.min_values_policy,
            min_saving=self.min_saving,
            eviction_price=self.eviction_price,
            best_sets=self.consolidation_search == "best",
            many_replacements=self.consolidation_replacements == "many",
            reservation_id_label=traits.reservation_id_label,
            label_rules=traits.label_rules,
            managed_class_kinds=frozenset((kind.group, kind.kind) for kind in traits.node_classes),
            repair=RepairRules(traits.repair_policies) if repairs else None,
        )


class BadSettings(ValueError):
    """Settings that the program must not start with: all of them, one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def load_settings(
    flags: Mapping[str, str], env: Mapping[str, str], provider: Sequence[Setting] = ()
) -> tuple[Settings, list[str]]:
    """Settings and warnings from the flags given (by name) and the environment; raises BadSettings.

    `provider` is the chosen provider's own table; its values end up in `Settings.provider`.
    """
    problems: list[str] = []
    core = {item.flag.replace("-", "_"): _read(item, flags, env, problems) for item in ALL_SETTINGS}
    own = {item.flag: _read(item, flags, env, problems) for item in provider}
    known = {item.flag for item in (*ALL_SETTINGS, *provider)}
    problems.extend(f"--{name}: unknown flag" for name in flags if name not in known)
    if problems:
        raise BadSettings(problems)
    settings = Settings(**core, provider=own)
    return settings, _warnings(settings, env, [item.env for item in (*ALL_SETTINGS, *provider)])


def _read(item: Setting, flags: Mapping[str, str], env: Mapping[str, str], problems: list[str]) -> Any:
    source, text = "", item.default
    if item.flag in flags:
        source, text = f"--{item.flag}", flags[item.flag]
    elif env.get(item.env):
        source, text = item.env, env[item.env]
    try:
        return item.parse(text)
    except ValueError as error:
        problems.append(f"{source or item.env}: {error}, got {text!r}")
        return None


def _warnings(settings: Settings, env: Mapping[str, str], known: Sequence[str]) -> list[str]:
    warnings: list[str] = []
    gates = settings.feature_gates
    if gates.unknown:
        warnings.append(f"unknown feature gates are ignored: {', '.join(gates.unknown)}")
    if settings.consolidation_replacements == "many" and settings.consolidation_search != "best":
        warnings.append("consolidation-replacements=many has no effect without consolidation-search=best")
    if gates.terminate_first_repair and not gates.node_repair:
        warnings.append("feature gate TerminateFirstRepair has no effect without NodeRepair")
    misspelt = _misspelt(env, known)
    if misspelt:
        listed = ", ".join(f"{name} (did you mean {meant}?)" for name, meant in misspelt)
        warnings.append(f"unknown environment variables are ignored: {listed}")
    others = sorted(name for name in _OF_AWS.difference(known) if env.get(name))
    if others:
        warnings.append(f"settings of another provider are ignored: {', '.join(others)}")
    return warnings


def _misspelt(env: Mapping[str, str], known: Sequence[str]) -> list[tuple[str, str]]:
    """Variables that look like one of ours; an environment is full of others' that are none of our business."""
    found: list[tuple[str, str]] = []
    for name in sorted(env):
        if name in known or name in _FOREIGN or _SERVICE_LINK.fullmatch(name) or "://" in env[name]:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if near:
            found.append((name, near[0]))
    return found
