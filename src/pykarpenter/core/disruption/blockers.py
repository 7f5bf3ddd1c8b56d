"""Why a machine stays: one structured value behind the event, the log line and `explain`."""

from __future__ import annotations

from dataclasses import dataclass

from pykarpenter.core.reasons import Why


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing in the way of disrupting a node, with the objects that stand for it."""

    why: Why
    message: str
    # `Kind namespace/name` of the pods, budgets or pools in the way, in a stable order.
    objects: tuple[str, ...] = ()
    # Epoch seconds at which it is over by itself; None when that is not known.
    until: float | None = None
    # Prices of the comparison that failed, $/hour: what runs now, the cheapest and the worst launch found.
    price_now: float | None = None
    price_found: float | None = None

    def text(self) -> str:
        """The message as events carry it: first letter capitalised, with the prices that were compared."""
        text = self.message[:1].upper() + self.message[1:]
        if self.price_now is None or self.price_found is None:
            return text
        return f"{text} (${self.price_now:.4f}/h now, ${self.price_found:.4f}/h at best)"


@dataclass(frozen=True, slots=True)
class Notice:
    """An event that a decision wants published.

    `kind` is Node (which also goes to its NodeClaim), NodePool or Pod; `name` is its key.
    """

    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False
    window_s: float = 120.0
    # The NodeClaim that gets the event as well.
    claim: str = ""
