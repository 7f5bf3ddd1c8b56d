"""The in-process store: Kubernetes object semantics over plain JSON values, without HTTP or an event loop.

`Store` is the door. Objects in it are never changed in place: every write makes a new version that shares what did
not change with the old one.
"""

from pykarpenter.sim.store.entries import Entry
from pykarpenter.sim.store.requests import DeleteRequest, ListRequest, WatchRequest, WriteOptions
from pykarpenter.sim.store.resources import Resource
from pykarpenter.sim.store.store import Store
from pykarpenter.sim.store.watches import Watch

__all__ = ["DeleteRequest", "Entry", "ListRequest", "Resource", "Store", "Watch", "WatchRequest", "WriteOptions"]
