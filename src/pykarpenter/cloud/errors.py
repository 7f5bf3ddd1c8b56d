"""What a cloud can answer other than success; each error has its own consequence for a NodeClaim."""

from __future__ import annotations


class CloudError(Exception):
    """Base of all provider errors; anything else raised by a provider is treated as `unknown`."""


class NodeClaimNotFound(CloudError):
    """The instance does not exist (any more)."""


class InsufficientCapacity(CloudError):
    """No offering that the claim allows can be had now; the claim is given up and planned anew."""

    def __init__(self, message: str, offerings: tuple[tuple[str, str, str], ...] = ()) -> None:
        super().__init__(message)
        # (instance type, zone, capacity type) that were refused, to be remembered as unavailable.
        self.offerings = offerings


class NodeClassNotReady(CloudError):
    """The class the claim refers to cannot launch anything now."""


class CreateError(CloudError):
    """A launch failed for a reason worth a condition of its own."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class UnevaluatedNodePool(CloudError):
    """Overlays of the pool have not been evaluated yet; ask again later."""


class NodeRebootNotImplemented(CloudError):
    """The provider cannot reboot in place."""


class NodeRebootFailed(CloudError):
    """The reboot is hopeless; retrying will not help."""
