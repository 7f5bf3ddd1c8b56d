"""Pods to machines: the packing engine."""

from pykarpenter.core.packing.engine import PackingEngine, pack
from pykarpenter.core.packing.what_if import WhatIfBase, WhatIfOptions, what_if

__all__ = ["PackingEngine", "WhatIfBase", "WhatIfOptions", "pack", "what_if"]
