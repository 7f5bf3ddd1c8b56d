"""The embedded cluster served over TLS on loopback, so that the real kubectl works on it."""

from pykarpenter.sim.server.serving import ServedCluster

__all__ = ["ServedCluster"]
