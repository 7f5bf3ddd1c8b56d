"""What checkers found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant: its number, when (virtual epoch seconds), and the facts."""

    invariant: str
    at: float
    message: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.message}"


@dataclass(slots=True)
class Report:
    """Violations in the order they were found; the same fact is kept once."""

    violations: list[Violation] = field(default_factory=list)
    _seen: dict[tuple[str, str], None] = field(default_factory=dict)

    def add(self, invariant: str, at: float, message: str) -> None:
        if (invariant, message) not in self._seen:
            self._seen[(invariant, message)] = None
            self.violations.append(Violation(invariant, at, message))
