"""Every label, annotation, taint and finalizer key that Karpenter's objects use, and which keys are reserved.

Provider additions to the well-known and restricted sets are values that a caller passes on; nothing here changes
while the program runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GROUP = "karpenter.sh"
OWN_GROUP = "pykarpenter.sh"

NODEPOOL = "karpenter.sh/nodepool"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
REGISTERED = "karpenter.sh/registered"
INITIALIZED = "karpenter.sh/initialized"
DO_NOT_SYNC_TAINTS = "karpenter.sh/do-not-sync-taints"
EXCLUDE_FROM_LOAD_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
EXCLUDE_FROM_LOAD_BALANCERS_VALUE = "karpenter"

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
HOSTNAME = "kubernetes.io/hostname"

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
DO_NOT_REPAIR = "karpenter.sh/do-not-repair"
NODEPOOL_HASH = "karpenter.sh/nodepool-hash"
NODEPOOL_HASH_VERSION = "karpenter.sh/nodepool-hash-version"
NODEPOOL_HASH_VERSION_VALUE = "v3"
TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp"
MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"
REQUESTED_DRA_DRIVERS = "karpenter.sh/requested-dra-drivers"
PRICE_OVERLAY_APPLIED = "karpenter.sh/price-overlay-applied"
CAPACITY_OVERLAY_APPLIED = "karpenter.sh/capacity-overlay-applied"
DISRUPTION_COST = "karpenter.sh/disruption-cost"
POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
REBOOT_PRE_BOOT_ID = "karpenter.sh/reboot-pre-boot-id"
REBOOT_TERMINATION_GRACE_PERIOD = "karpenter.sh/reboot-termination-grace-period"
CAPACITY_BUFFER_FAKE_POD = "karpenter.sh/capacity-buffer-fake-pod"
CAPACITY_BUFFER_NAME = "karpenter.sh/capacity-buffer-name"
CAPACITY_BUFFER_NAMESPACE = "karpenter.sh/capacity-buffer-namespace"
# The most a NodeClaim can add to its pool's usage, as a JSON object of quantities: counts against limits until the
# machine's real capacity is known, also after a restart.
PROMISED_CAPACITY = "pykarpenter.sh/promised-capacity"
# The plan that asked for the NodeClaim; log lines of its whole life carry it.
PLAN_ID = "pykarpenter.sh/plan-id"

DISRUPTED_TAINT = "karpenter.sh/disrupted"
UNREGISTERED_TAINT = "karpenter.sh/unregistered"
REBOOTING_TAINT = "karpenter.sh/rebooting"
READINESS_TAINT_PREFIX = "readiness.k8s.io/"

TERMINATION_FINALIZER = "karpenter.sh/termination"

ON_DEMAND = "on-demand"
SPOT = "spot"
RESERVED = "reserved"
CAPACITY_TYPES = (RESERVED, SPOT, ON_DEMAND)

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"

WELL_KNOWN: frozenset[str] = frozenset({NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD})
WELL_KNOWN_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")

ALIASES: dict[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
}

# Taints that a starting node loses by itself: matched by key and effect, the value is ignored.
EPHEMERAL_TAINTS: frozenset[tuple[str, str]] = frozenset(
    {
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        (UNREGISTERED_TAINT, "NoExecute"),
    }
)


@dataclass(frozen=True, slots=True)
class LabelRules:
    """Which keys are well-known and which domains are reserved, provider additions included."""

    well_known: frozenset[str] = WELL_KNOWN
    restricted_domains: tuple[str, ...] = (GROUP,)
    aliases: dict[str, str] = field(default_factory=lambda: dict(ALIASES))

    def is_restricted(self, key: str) -> bool:
        """Whether users may not set or select this key: hostname, or a reserved domain that is not well-known."""
        if key in self.well_known:
            return False
        if key == HOSTNAME:
            return True
        domain = key.partition("/")[0] if "/" in key else ""
        return any(domain == reserved or domain.endswith("." + reserved) for reserved in self.restricted_domains)

    def normalise(self, key: str) -> str:
        return self.aliases.get(key, key)


DEFAULT_RULES = LabelRules()


def is_ephemeral_taint(key: str, effect: str) -> bool:
    return (key, effect) in EPHEMERAL_TAINTS or key.startswith(READINESS_TAINT_PREFIX)
