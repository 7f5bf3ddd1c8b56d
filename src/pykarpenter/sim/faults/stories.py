"""Stories drawn from a seed: what users do to a cluster, and what goes wrong meanwhile.

A story is a list of steps of plain values, so it can be printed, shortened and replayed. Drawing knows nothing of how
a step is carried out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

# Users act and faults strike for this long; then the world has the rest to settle.
BUSY_S = 1800.0


class Step(msgspec.Struct, frozen=True):
    """One thing that happens at a time (seconds from the start)."""

    at: float
    action: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        listed = ", ".join(f"{key}={value}" for key, value in self.args.items())
        return f"{self.at:7.1f} s  {self.action}({listed})"


class Story(msgspec.Struct, frozen=True):
    """A seed and its steps in order of time."""

    seed: int
    steps: tuple[Step, ...]
    # Feature gates of the program, as its setting has them.
    gates: str = ""
    # The wall time at which it begins (epoch seconds; None for the usual one), and the process's own time zone.
    start: float | None = None
    zone: str = ""
    # Users act and faults strike at least for this long.
    busy_s: float = BUSY_S


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the fault catalogue: the action that arms it and how its arguments are drawn."""

    action: str
    draw: Callable[[random.Random], dict[str, Any]] = lambda _: {}
    # Feature gates without which nothing would come of it.
    gates: str = ""
    # (start, zone) of a story with this fault, one of them.
    begins: tuple[tuple[float, str], ...] = ()


# Just before a leap day, and before clocks change in Europe and America, each where that happens.
_EDGES = (
    (1_835_394_600.0, "UTC0"),
    (1_774_745_400.0, "CET-1CEST,M3.5.0,M10.5.0/3"),
    (1_793_511_000.0, "EST5EDT,M3.2.0,M11.1.0"),
)


FAULTS: dict[str, Fault] = {
    "F1": Fault("taint_new_nodes", lambda r: {"for_s": r.randint(120, 400)}),
    "F2": Fault("crash_after_launch"),
    "F3": Fault("lose_launch_replies", lambda r: {"times": r.randint(1, 3)}),
    "F4": Fault("ignore_deletes", lambda r: {"times": r.randint(1, 3)}),
    "F5": Fault("throttle_cloud", lambda r: {"times": r.randint(3, 15), "after_success": r.randint(0, 2)}),
    "F6": Fault("shorten_lists", lambda r: {"times": r.randint(1, 4)}),
    "F7": Fault("stale_lists", lambda r: {"times": r.randint(1, 4)}),
    "F8": Fault("run_short", lambda r: {"zone": r.choice(["demo-1a", "demo-1b"]), "family": r.choice(["c", "m", "t"])}),
    "F9": Fault("fail_boots", lambda r: {"times": r.randint(1, 2)}),
    "F10": Fault("burst", lambda r: {"pods": r.randint(150, 300), "for_s": r.randint(120, 300)}),
    "F11": Fault("bind_late", lambda r: {"for_s": r.randint(200, 600)}),
    "F12": Fault("protect", lambda r: {"share": 0.3, "for_s": r.randint(200, 700)}),
    "F13": Fault("lag_pods", lambda r: {"seconds": 60, "for_s": r.randint(120, 300)}),
    "F14": Fault("flash_claim", lambda r: {"pool": "general"}),
    "F15": Fault("stall_watches", lambda r: {"for_s": r.randint(100, 400)}),
    "F16": Fault("compact", lambda r: {"watches": r.randint(4, 20)}),
    "F17": Fault("deny", lambda r: {"calls": r.choice(["terminate", "launch", "list"]), "for_s": r.randint(60, 300)}),
    "F18": Fault("lose_deleting", lambda r: {"which": r.randint(0, 9)}),
    "F19": Fault("block_lease", lambda r: {"for_s": r.randint(20, 60)}),
    "F20": Fault("pause", lambda r: {"for_s": r.randint(40, 90)}),
    "F21": Fault("crash_at_write", lambda r: {"nth": r.randint(1, 30)}),
    "F22": Fault("conflict", lambda r: {"times": r.randint(3, 20)}),
    "F23": Fault("outage", lambda r: {"for_s": r.randint(10, 300), "errors": r.randint(0, 10)}),
    "F24": Fault("disorder", lambda r: {"times": r.randint(20, 80), "lag_s": r.choice([1, 2, 5])}),
    "F25": Fault("distrust_nodes", lambda r: {"for_s": r.randint(60, 400)}),
    "F26": Fault("grow_daemons", lambda r: {"for_s": r.randint(400, 900), "cpu": r.choice(["250m", "1"])}),
    "F27": Fault("bad_image", lambda r: {"for_s": r.randint(300, 1200)}),
    "F28": Fault(
        "unready",
        lambda r: {"share": 0.3, "for_s": r.choice([120, 400, 900]), "whole_zone": r.random() < 0.5},
        gates="NodeRepair=true",
    ),
    "F29": Fault("interrupt", lambda r: {"share": 0.5}),
    "F30": Fault(
        "garble_queue",
        lambda r: {"how": r.choice(["duplicate", "delay", "reorder", "disappear"]), "for_s": r.randint(100, 200)},
    ),
    "F31": Fault("foreign", lambda r: {"similar": r.random() < 0.5}),
    "F32": Fault("break_webhook", lambda r: {"for_s": r.randint(20, 120)}),
    "F33": Fault("unserve", lambda r: {"plural": r.choice(["nodepools", "nodeclaims"]), "for_s": r.randint(100, 400)}),
    "F34": Fault("roll_program", lambda r: {"for_s": r.randint(30, 200)}),
    "F35": Fault("change_hashes", lambda r: {"for_s": r.randint(100, 400)}),
    "F36": Fault("replace_pool", lambda r: {"name": "general", "after_s": r.randint(20, 200)}),
    "F39": Fault("poison", lambda r: {"which": r.randint(0, 9), "for_s": r.randint(60, 400)}),
    "F40": Fault(
        "skew_clock",
        lambda r: {"by_s": r.choice([-600, 600]), "for_s": r.randint(60, 600), "slowly": r.random() < 0.3},
    ),
    "F41": Fault(
        "shut_window",
        lambda r: {"pool": "general", "after_s": r.randint(5, 200), "lasts_s": 60 * r.randint(1, 5)},
        begins=_EDGES,
    ),
    "F42": Fault("block_by_budget", lambda r: {"which": r.randint(0, 9), "for_s": r.randint(60, 600)}),
    "F43": Fault("stick_volumes", lambda r: {"replicas": r.randint(1, 3), "for_s": r.randint(60, 500)}),
    "F44": Fault("spoil_prices", lambda r: {"how": r.choice(["missing", "zero", "huge"]), "for_s": 300}),
    "F45": Fault("empty_catalogue", lambda r: {"for_s": r.randint(60, 600)}),
    "F46": Fault("exhaust_subnets", lambda r: {"times": r.randint(1, 2)}),
    "F47": Fault("double_identity", lambda r: {"which": r.randint(0, 9), "for_s": r.randint(60, 400)}),
    "F48": Fault("block_loop", lambda r: {"seconds": r.choice([5, 20, 40])}),
}


# Another action that fires the same fault, drawn now and then instead.
VARIANTS: dict[str, Fault] = {
    "F33": Fault("newer_fields", lambda r: {"for_s": r.randint(100, 400)}),
    "F47": Fault("reuse_name", lambda r: {"which": r.randint(0, 9), "for_s": r.randint(60, 400)}),
}

# A window cannot be kept by a clock that is wrong.
_APART = (("F40", "F41"),)


def draw_story(seed: int, *, faults: tuple[str, ...] = tuple(FAULTS), most_faults: int = 4) -> Story:
    """Users' actions and some faults over half an hour, all from one seed; each fault has its turn as seeds go on."""
    rng = random.Random(f"story/{seed}")
    steps = [Step(1.0, "pool", {"name": "general", "limit": rng.choice([0, 0, 400, 1000])})]
    names = [f"app-{i}" for i in range(rng.randint(1, 3))]
    for name in names:
        steps.append(Step(round(rng.uniform(2, 60), 1), "deploy", {"name": name, **_shape(rng)}))
    for _ in range(rng.randint(3, 8)):
        steps.append(_user_step(rng, names))
    steps = _with_jobs_apart(steps)
    chosen = _choose(rng, seed, faults, most_faults)
    for name in chosen:
        fault = VARIANTS[name] if name in VARIANTS and rng.random() < 0.3 else FAULTS[name]
        at = round(rng.uniform(5, BUSY_S * 0.8), 1)
        steps.append(Step(at, fault.action, fault.draw(rng)))
        # Something must happen while the fault is armed, or it would never fire.
        steps.append(Step(round(at + rng.uniform(0.5, 5), 1), "scale", {"name": rng.choice(names), "to": _size(rng)}))
    steps.extend(_trouble(random.Random(f"trouble/{seed}")))
    start, zone = next((rng.choice(FAULTS[n].begins) for n in chosen if FAULTS[n].begins), (None, ""))
    gates = ",".join(FAULTS[n].gates for n in chosen if FAULTS[n].gates)
    return Story(seed, tuple(sorted(steps, key=lambda step: step.at)), gates, start, zone)


def small_story(seed: int, *, faults: tuple[str, ...] = tuple(FAULTS)) -> Story:
    """A few pods and one fault over ten minutes: cheap enough for every test run."""
    rng = random.Random(f"small/{seed}")
    busy = BUSY_S / 3
    shape = {**_shape(rng), "replicas": rng.choice([2, 3, 5])}
    steps = [
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(2.0, "deploy", {"name": "app-0", **shape}),
        Step(round(rng.uniform(60, busy), 1), rng.choice(["delete_claim", "delete_pod", "lose_machine"]), {"which": 0}),
        Step(busy - 60.0, "scale", {"name": "app-0", "to": rng.choice([1, 4])}),
    ]
    name = faults[seed % len(faults)]
    fault = FAULTS[name]
    at = round(rng.uniform(5, busy / 2), 1)
    steps.append(Step(at, fault.action, fault.draw(rng)))
    steps.append(Step(round(at + rng.uniform(0.5, 5), 1), "scale", {"name": "app-0", "to": rng.choice([6, 8])}))
    start, zone = rng.choice(fault.begins) if fault.begins else (None, "")
    return Story(seed, tuple(sorted(steps, key=lambda step: step.at)), fault.gates, start, zone, busy)


def _trouble(rng: random.Random) -> list[Step]:
    """What is wrong from the beginning and must not hold up the rest: a pool nobody can use, a pod no room fits."""
    found = []
    if rng.random() < 0.3:
        found.append(Step(1.5, "broken_pool", {"name": "broken"}))
    if rng.random() < 0.3:
        found.append(Step(round(rng.uniform(2, 300), 1), "hopeless_pod", {"name": "hopeless"}))
    return found


def _choose(rng: random.Random, seed: int, faults: tuple[str, ...], most: int) -> list[str]:
    others = rng.sample(faults, k=min(len(faults), rng.randint(1, most)))
    chosen = list(dict.fromkeys([faults[seed % len(faults)], *others]))[: max(1, len(others))]
    for one, other in _APART:
        if one in chosen and other in chosen:
            chosen.remove(one)
    return chosen


def crash_story(seed: int, nth: int) -> Story:
    """A machine's whole life, with a crash right before the program's nth write (F21)."""
    steps = (
        Step(1.0, "pool", {"name": "general", "limit": 0}),
        Step(5.0, "crash_at_write", {"nth": nth}),
        Step(6.0, "deploy", {"name": "app-0", "replicas": 3, "cpu": "1", "memory": "1Gi", "guarded": True}),
        Step(300.0, "scale", {"name": "app-0", "to": 6}),
        Step(600.0, "delete_claim", {"which": 0}),
    )
    return Story(seed, steps)


def _shape(rng: random.Random) -> dict[str, Any]:
    return {
        "replicas": _size(rng),
        "cpu": rng.choice(["250m", "500m", "1", "2", "3500m"]),
        "memory": rng.choice(["256Mi", "1Gi", "4Gi"]),
        "spread": rng.random() < 0.3,
        "guarded": rng.random() < 0.4,
    }


def _size(rng: random.Random) -> int:
    return rng.choice([1, 2, 3, 5, 8, 13, 20])


def _with_jobs_apart(steps: list[Step]) -> list[Step]:
    """Jobs are named after the second in which they come; two of one second need two names."""
    found: list[Step] = []
    seen: Counter[str] = Counter()
    for step in steps:
        name = step.args["name"] if step.action == "job" else ""
        if seen[name] and name:
            found.append(msgspec.structs.replace(step, args={**step.args, "name": f"{name}-{seen[name]}"}))
        else:
            found.append(step)
        seen[name] += 1
    return found


def _user_step(rng: random.Random, names: list[str]) -> Step:
    at = round(rng.uniform(60, BUSY_S), 1)
    action = rng.choice(["scale", "scale", "scale", "delete_claim", "delete_pod", "job", "lose_machine"])
    if action == "scale":
        return Step(at, action, {"name": rng.choice(names), "to": _size(rng)})
    if action == "job":
        return Step(at, action, {"name": f"job-{int(at)}", "pods": rng.randint(1, 8), "runs_for": rng.randint(30, 240)})
    return Step(at, action, {"which": rng.randint(0, 9)})
