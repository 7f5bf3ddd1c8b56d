"""pykarpenter: a Kubernetes node autoscaler that reads Karpenter's objects, decides purely, and explains itself."""

__version__ = "0.1.0"

# The Karpenter core release whose objects, labels and promises this version follows.
KARPENTER_COMPATIBILITY = "1.15"
