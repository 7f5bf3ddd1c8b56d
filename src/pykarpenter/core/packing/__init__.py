"""Pods to machines: the packing engine."""

from pykarpenter.core.packing.engine import PackingEngine, pack

__all__ = ["PackingEngine", "pack"]
