"""What the API client, reflectors, recorder and leader gate report; metrics are one listener, silence the default."""

from __future__ import annotations

from typing import Protocol


class KubeObserver(Protocol):
    """Told about traffic with the API server; must be quick and must not raise."""

    def request(self, verb: str, kind: str, subresource: str, code: str, seconds: float) -> None:
        """One finished request: `kind` is `group/version/Kind`, `code` the HTTP code or `<error>`."""
        ...

    def rate_limited(self, seconds: float) -> None: ...

    def watch_restarted(self, kind: str, reason: str) -> None:
        """`closed`, `expired`, `silent` or `error`."""
        ...

    def watch_lag(self, kind: str, seconds: float) -> None: ...

    def event_anomaly(self, kind: str, anomaly: str) -> None: ...

    def undecodable(self, kind: str) -> None: ...

    def fenced(self, verb: str, kind: str) -> None: ...

    def leading(self, name: str, leads: bool) -> None: ...

    def leader_slowpath(self, name: str) -> None:
        """A renewal found the lease changed by somebody else and had to read it."""
        ...

    def event_dropped(self, reason: str) -> None: ...

    def clock_skew(self, seconds: float) -> None:
        """How far the server's wall clock is ahead of ours."""
        ...


class IgnoreKube:
    """Listens to nothing."""

    def request(self, verb: str, kind: str, subresource: str, code: str, seconds: float) -> None:
        pass

    def rate_limited(self, seconds: float) -> None:
        pass

    def watch_restarted(self, kind: str, reason: str) -> None:
        pass

    def watch_lag(self, kind: str, seconds: float) -> None:
        pass

    def event_anomaly(self, kind: str, anomaly: str) -> None:
        pass

    def undecodable(self, kind: str) -> None:
        pass

    def fenced(self, verb: str, kind: str) -> None:
        pass

    def leading(self, name: str, leads: bool) -> None:
        pass

    def leader_slowpath(self, name: str) -> None:
        pass

    def event_dropped(self, reason: str) -> None:
        pass

    def clock_skew(self, seconds: float) -> None:
        pass


IGNORE_KUBE = IgnoreKube()
