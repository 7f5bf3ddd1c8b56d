"""The search for devices: claims, requests and device slots depth first, with backtracking.

It runs for one machine at a time. Candidates come in the order they are preferred; alternatives of a request in list
order, and the first whose whole remaining search succeeds wins. Effort is counted in devices tried, never in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pykarpenter.core.devices.consumption import InUse, Usage, charge
from pykarpenter.core.devices.demand import MAX_DEVICES, ClaimDemand, Option
from pykarpenter.core.devices.matching import Bindings, Bonds, joined
from pykarpenter.core.devices.placing import Term
from pykarpenter.core.devices.pools import Amount, CounterId, Pool, PoolDevice, qualified
from pykarpenter.core.devices.selectors import SelectorError

# Devices tried before a machine is given up; a search of this size takes about a second.
MAX_TRIES = 20_000
# Devices tried in vain for one set of claims, over all machines of a decision.
MAX_TRIES_IN_ALL = 60_000

# What is narrowed along the way: the planned machine, or nothing for one that exists.
S = TypeVar("S")
Narrow = Callable[[S, Term], S | None]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A device that the machine could have; terms narrow where the machine is."""

    device: PoolDevice
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Pick:
    """One device of one claim, which is named by its position among those searched for."""

    claim: int
    request: str
    device: PoolDevice
    usage: Usage
    term: Term | None = None


@dataclass(slots=True)
class Supply:
    """What one machine offers: its candidates, the counters behind them and pools that are of no use."""

    candidates: Sequence[Candidate]
    counters: Mapping[CounterId, Amount]
    broken: Sequence[Pool] = ()
    bindings: Bindings = field(default_factory=Bindings)


class _OutOfEffort(Exception):
    pass


class Matcher:
    """Whether a device is what an option asks for, remembered for one decision."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], bool] = {}
        self._held: list[object] = []

    def matches(self, option: Option, device: PoolDevice) -> bool:
        key = (id(option), id(device))
        found = self._known.get(key)
        if found is None:
            found = all(selector.matches(device) for selector in option.selectors)
            self._known[key] = found
            # Held so that their identities stay taken.
            self._held += [option, device]
        return found


class Search(Generic[S]):
    """One search; `run` answers the picks and the narrowed machine, or why there are none."""

    def __init__(
        self,
        supply: Supply,
        used: InUse,
        matcher: Matcher,
        narrow: Narrow[S],
        limit: int = MAX_TRIES,
    ) -> None:
        self._supply = supply
        self._used = used
        self._matcher = matcher
        self._narrow = narrow
        self._limit = limit
        self._claims: Sequence[ClaimDemand] = ()
        self._picks: list[Pick] = []
        self._reason = ""
        self.tries = 0
        # Devices in hand when the attempt that got furthest failed.
        self._deepest = -1

    @property
    def progress(self) -> int:
        return self._deepest

    def run(self, claims: Sequence[ClaimDemand], state: S) -> tuple[list[Pick], S] | str:
        self._claims = claims
        try:
            found = self._claim(0, state)
        except _OutOfEffort:
            tries = f"{self._limit} tries" if self._limit > 0 else "too many tries on other machines"
            return f"the search for devices was given up after {tries}"
        except SelectorError as error:
            return str(error)
        return (self._picks, found) if found is not None else self._reason

    def _claim(self, index: int, state: S) -> S | None:
        if index == len(self._claims):
            return state
        return self._request(index, 0, 0, (None,) * len(self._claims[index].matches), state)

    def _request(self, claim: int, index: int, held: int, bonds: Bonds, state: S) -> S | None:
        requests = self._claims[claim].requests
        if index == len(requests):
            return self._claim(claim + 1, state)
        for option in requests[index].options:
            if option.takes_all:
                found = self._all(claim, index, option, held, bonds, state)
            else:
                found = self._slot(claim, index, option, option.count, 0, held, bonds, state)
            if found is not None:
                return found
        return None

    def _slot(
        self, claim: int, index: int, option: Option, left: int, start: int, held: int, bonds: Bonds, state: S
    ) -> S | None:
        if not left:
            return self._request(claim, index + 1, held, bonds, state)
        if held + left > MAX_DEVICES:
            self._note(claim, option, f"would bring the claim above {MAX_DEVICES} devices")
            return None
        tried: set[tuple[object, ...]] = set()
        problems: dict[str, int] = {}
        for at in range(start, len(self._supply.candidates)):
            candidate = self._supply.candidates[at]
            device = candidate.device
            if not self._matcher.matches(option, device):
                continue
            shape = (*device.shape, *self._supply.bindings.groups_of(device.id))
            if not device.multiple and shape in tried:
                continue
            taken = self._take(claim, option, candidate, bonds, state)
            if isinstance(taken, str):
                problems[taken] = problems.get(taken, 0) + 1
                continue
            for narrowed, joint in taken:
                found = self._slot(claim, index, option, left - 1, at + 1, held + 1, joint, narrowed)
                if found is not None:
                    return found
                self._undo()
            tried.add(shape)
        if not tried and len(self._picks) > self._deepest:
            self._passed_over(claim, option, start, bonds, state, problems)
            self._note(claim, option, _text(option, left, problems))
        return None

    def _passed_over(
        self, claim: int, option: Option, start: int, bonds: Bonds, state: S, problems: dict[str, int]
    ) -> None:
        """Count what is wrong with the devices that slots before this one did not take."""
        held = {pick.device.id for pick in self._picks}
        for candidate in self._supply.candidates[:start]:
            if candidate.device.id not in held and self._matcher.matches(option, candidate.device):
                taken = self._take(claim, option, candidate, bonds, state)
                if isinstance(taken, str):
                    problems[taken] = problems.get(taken, 0) + 1

    def _all(self, claim: int, index: int, option: Option, held: int, bonds: Bonds, state: S) -> S | None:
        broken = self._supply.broken
        if broken:
            self._note(claim, option, f"needs every pool, but {broken[0].id.name!r} is {broken[0].problem}")
            return None
        wanted = [c for c in self._supply.candidates if self._matcher.matches(option, c.device)]
        if not wanted:
            self._note(claim, option, _text(option, 1, {}))
            return None
        if held + len(wanted) > MAX_DEVICES:
            self._note(claim, option, f"would bring the claim above {MAX_DEVICES} devices")
            return None
        before = len(self._picks)
        found: S | None = state
        for candidate in wanted:
            taken = self._take(claim, option, candidate, bonds, found) if found is not None else "unreachable"
            if isinstance(taken, str):
                self._note(claim, option, f"needs all devices, but {candidate.device.id.text} is {taken}")
                found = None
                break
            found, bonds = next(taken)
        if found is not None:
            found = self._request(claim, index + 1, held + len(wanted), bonds, found)
        while found is None and len(self._picks) > before:
            self._undo()
        return found

    def _take(
        self, claim: int, option: Option, candidate: Candidate, bonds: Bonds, state: S
    ) -> Iterator[tuple[S, Bonds]] | str:
        """Every way to take the device, each already recorded when it is handed out; or why there is none."""
        self.tries += 1
        if self.tries > max(self._limit, 0):
            raise _OutOfEffort
        device = candidate.device
        if device.tainted:
            return f"tainted with {device.tainted}, which is not supported"
        wanted = option.capacity
        if wanted:
            wanted = {qualified(name, device.id.driver): amount for name, amount in wanted.items()}
        usage = charge(device, wanted, self._used, self._supply.counters)
        if isinstance(usage, str):
            return usage
        joint = joined(self._claims[claim].matches, bonds, option.name, device, self._supply.bindings)
        if joint is None:
            return "at odds with matchAttribute"
        ways = self._ways(candidate, state)
        if not ways:
            return "out of the machine's reach"
        return self._recorded(claim, option, device, usage, joint, ways)

    def _ways(self, candidate: Candidate, state: S) -> list[tuple[S, Term | None]]:
        if not candidate.terms:
            return [(state, None)]
        ways: list[tuple[S, Term | None]] = []
        for term in candidate.terms:
            narrowed = self._narrow(state, term)
            if narrowed is not None:
                ways.append((narrowed, term))
        return ways

    def _recorded(
        self,
        claim: int,
        option: Option,
        device: PoolDevice,
        usage: Usage,
        joint: Bonds,
        ways: list[tuple[S, Term | None]],
    ) -> Iterator[tuple[S, Bonds]]:
        for state, term in ways:
            self._used.take(usage)
            self._picks.append(Pick(claim, option.name, device, usage, term))
            yield state, joint

    def _undo(self) -> None:
        self._used.give_back(self._picks.pop().usage)

    def _note(self, claim: int, option: Option, reason: str) -> None:
        """Remember the reason of the attempt that got furthest."""
        if len(self._picks) > self._deepest:
            self._deepest = len(self._picks)
            self._reason = f"claim {self._claims[claim].key}, request {option.name!r}: {reason}"


def _text(option: Option, left: int, problems: Mapping[str, int]) -> str:
    if not problems:
        more = f"{left} more" if left < option.count else str(option.count)
        return f"no device of class {option.device_class!r} matches ({more} needed)"
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(problems.items()))
    return f"no free device of class {option.device_class!r}: {listed}"
