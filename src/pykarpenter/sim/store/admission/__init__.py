"""What the server adds to, and refuses in, objects of particular kinds."""

from pykarpenter.sim.store.admission.chain import Admission

__all__ = ["Admission"]
