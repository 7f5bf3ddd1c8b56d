"""What is known about the cluster: fed with observed changes, asked for snapshots.

Pure and synchronous: no clock, no API calls. What has not been observed is unknown, never absent or free.
"""

from __future__ import annotations

from pykarpenter.state.marks import DeletionMarks, Nominations


class ClusterState:
    """The one mutable picture of the cluster in a process."""

    def __init__(self) -> None:
        self._marks = DeletionMarks()
        self._nominations = Nominations()
        self.revision = 0

    def mark_for_deletion(self, *provider_ids: str, reason: str = "") -> None:
        """Take machines out of service for scheduling; idempotent."""
        for provider_id in provider_ids:
            if self._marks.mark(provider_id, reason):
                self.revision += 1

    def unmark_for_deletion(self, *provider_ids: str) -> None:
        for provider_id in provider_ids:
            if self._marks.unmark(provider_id):
                self.revision += 1

    def nominate(self, name: str, until: float) -> None:
        """Keep a machine from disruption until then (epoch seconds), because pods are expected on it."""
        self._nominations.nominate(name, until)
        self.revision += 1
