"""Stories about a fleet in plain text: what is set up, what is asked, and what is answered.

A transcript is blocks of commands, a line `----`, and the answer. `python -m tests.transcripts --rewrite` writes the
answers anew, so that a change of behaviour is a readable difference.

Commands:
    pool NAME key=value…       budgets=10%;Empty:0 after=30s policy=Balanced replicas=3 nodes=5 capacity=spot,on-demand
    type NAME key=value…       cpu=4 gi=16 price=1.0 spot=0.3 zones=a,b reserved=id:units unpriced
    node NAME key=value…       type=m pool=default on=spot pods=web:1,db:2:protected drifted=10m grace=1h quiet=2m
                               flags: nominated protected starting going unhealthy
    pdb NAME app allowed=N     pending NAME:CPU      remove NAME      wait 15s      gate NAME…
    pass                       one pass: what each method finds, with the events it publishes
    validate                   the second look at the command of the last pass
    apply                      carry the last command out perfectly: pods land as planned
    explain NODE | explain-pool NAME
Pods are name:cpu with flags: protected (do-not-disrupt), daemon, stateful, terminating, app=NAME.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from pykarpenter.api import labels
from pykarpenter.api.duration import parse_duration
from pykarpenter.api.nodepool import Budget
from pykarpenter.api.pods import Pod
from pykarpenter.core.disruption.commands import Command, MethodRun
from pykarpenter.core.disruption.decide import decide
from pykarpenter.core.disruption.explain import explain_node, explain_pool
from pykarpenter.core.disruption.stories import node_lines, pool_lines
from pykarpenter.core.disruption.validation import rejection_notices, validate
from pykarpenter.core.repair import REPLACE, RepairPolicy, RepairRules
from tests.support.fleet import Fleet, condition, pending, pod

RULES = RepairRules([RepairPolicy("Sick", "True", "", 600.0, None, 0, REPLACE)])
Options = dict[str, str]


def run(text: str) -> str:
    """The transcript with every answer as the program gives it now."""
    story = Story()
    result: list[str] = []
    block: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        result.append(line)
        if line == "----":
            answer = story.play(block)
            result.extend(answer or ["ok"])
            block = []
            for old in lines:
                if not old.strip():
                    result.append(old)
                    break
        elif line.strip() and not line.startswith("#"):
            block.append(line)
    return "\n".join(result) + "\n"


class Story:
    def __init__(self) -> None:
        self.fleet = Fleet()
        self.fleet.engine = "fast"
        self.gates: dict[str, object] = {}
        self.last: Command | None = None
        self.launched = 0

    def play(self, block: list[str]) -> list[str]:
        answer: list[str] = []
        for line in block:
            word, *rest = line.split()
            answer.extend(self._commands()[word](rest) or [])
        return answer

    def _commands(self) -> dict[str, Callable[[list[str]], list[str] | None]]:
        return {
            "pool": self.pool,
            "type": self.type,
            "node": self.node,
            "pdb": self.pdb,
            "pending": self.pending,
            "remove": lambda rest: self.fleet.nodes.pop(rest[0]) and None,
            "wait": self.wait,
            "gate": self.gate,
            "pass": self.do_pass,
            "validate": self.validate,
            "apply": self.apply,
            "explain": self.explain,
            "explain-pool": self.explain_pool,
        }

    # What is there.

    def pool(self, rest: list[str]) -> None:
        name, options = rest[0], _options(rest[1:])
        budgets = None
        if "budgets" in options:
            budgets = [_budget(text) for text in options["budgets"].split(";") if text]
        self.fleet.pool(
            name,
            budgets=budgets,
            after=options.get("after", "0s"),
            policy=options.get("policy", "WhenEmptyOrUnderutilized"),
            replicas=int(options["replicas"]) if "replicas" in options else None,
            limits={"nodes": options["nodes"]} if "nodes" in options else None,
            capacity_types=options["capacity"].split(",") if "capacity" in options else None,
            ready="not-ready" not in rest,
        )

    def type(self, rest: list[str]) -> None:
        options = _options(rest[1:])
        reserved = options.get("reserved")
        self.fleet.type(
            rest[0],
            cpu=float(options.get("cpu", "4")),
            gi=float(options.get("gi", "16")),
            price=float(options.get("price", "1")),
            spot=float(options["spot"]) if "spot" in options else None,
            zones=tuple(options.get("zones", "zone-1").split(",")),
            reserved=(reserved.split(":")[0], int(reserved.split(":")[1])) if reserved else None,
            on_demand="reserved-only" not in rest,
            unpriced="unpriced" in rest,
        )

    def node(self, rest: list[str]) -> None:
        name, options = rest[0], _options(rest[1:])
        now = self.fleet.now
        quiet = now - parse_duration(options["quiet"]) if "quiet" in options else None
        pool = self.fleet.pools[options.get("pool", "default")]
        after = pool.spec.disruption.consolidate_after
        settled = quiet is None or after == "Never" or now - quiet >= parse_duration(after)
        self.fleet.node(
            name,
            pool=pool.name,
            type=options.get("type", "m"),
            zone=options.get("zone", "zone-1"),
            capacity_type=options.get("on", labels.ON_DEMAND),
            pods=[_pod(text) for text in options.get("pods", "").split(",") if text],
            drifted=now - parse_duration(options["drifted"]) if "drifted" in options else None,
            grace=options.get("grace"),
            last_pod_event=quiet,
            consolidatable=settled and after != "Never",
            reservation=options.get("reservation", ""),
            annotations={labels.DO_NOT_DISRUPT: "true"} if "protected" in rest else {},
            nominated_until=now + 20 if "nominated" in rest else 0.0,
            initialized="starting" not in rest,
            marked_for_deletion="going" in rest,
            node_conditions=[condition("Ready"), condition("Sick", "True", "Broken")] if "unhealthy" in rest else None,
        )

    def pdb(self, rest: list[str]) -> None:
        self.fleet.pdb(rest[0], {"app": rest[1]}, allowed=int(_options(rest).get("allowed", "0")))

    def pending(self, rest: list[str]) -> None:
        for text in rest:
            name, cpu = text.split(":")
            self.fleet.pending.append(pending(name, cpu=float(cpu)))

    def wait(self, rest: list[str]) -> None:
        self.fleet.now += parse_duration(rest[0])

    def gate(self, rest: list[str]) -> None:
        self.gates.update({name.replace("-", "_"): True for name in rest})

    # What is asked.

    def _world(self):
        return self.fleet.world(repair=RULES, **self.gates)

    def do_pass(self, _: list[str]) -> list[str]:
        plan = decide(self._world(), self.fleet.simulation())
        self.last = plan.commands[0] if plan.commands else None
        lines = [line for found in plan.runs for line in _run_lines(found)]
        return lines or ["nothing to do"]

    def validate(self, _: list[str]) -> list[str]:
        assert self.last is not None
        world = self._world()
        result = validate(world, self.fleet.simulation(), self.last)
        if result.command is not None:
            self.last = result.command
            return [f"still holds: {result.command.text()}"]
        notices = rejection_notices(world, self.last, result)
        why = result.blocker.message if result.blocker is not None else ""
        return [f"abandoned ({result.failure}): {why}", *(f"  event {n.reason} on {n.name}" for n in notices)]

    def apply(self, _: list[str]) -> list[str]:
        """Pods land as planned; the price of the fleet before and after."""
        assert self.last is not None
        before = self._bill()
        pods = {p.key: p for view in self.fleet.nodes.values() for p in view.pods}
        for name in self.last.nodes:
            del self.fleet.nodes[name]
        for placement in self.last.placements:
            self._land(placement.node, [pods[key] for key in placement.pods if key in pods])
        for claim in self.last.replacements:
            self.launched += 1
            choice = claim.choice
            self.fleet.node(
                f"new-{self.launched}",
                pool=claim.node_pool,
                type=choice.instance_type,
                zone=choice.zone,
                capacity_type=choice.capacity_type,
                pods=[pods[key] for key in claim.pods if key in pods],
            )
        return [f"${before:.2f}/h -> ${self._bill():.2f}/h, nodes: {', '.join(sorted(self.fleet.nodes))}"]

    def _land(self, node: str, pods: list[Pod]) -> None:
        view = self.fleet.nodes[node]
        moved = tuple(sorted((*view.pods, *pods), key=lambda p: p.key))
        self.fleet.nodes[node] = dataclasses.replace(view, pods=moved)

    def _bill(self) -> float:
        world = self.fleet.world()
        return sum(world.price(view) or 0.0 for view in world.nodes)

    def explain(self, rest: list[str]) -> list[str]:
        world = self._world()
        return node_lines(explain_node(world, self.fleet.simulation(), world.by_name[rest[0]]))

    def explain_pool(self, rest: list[str]) -> list[str]:
        return pool_lines(explain_pool(self._world(), self.fleet.simulation(), rest[0]))


def _run_lines(found: MethodRun) -> list[str]:
    lines = [f"{found.method}: {command.text()}{_money(command)}" for command in found.commands]
    if found.error:
        lines.append(f"{found.method}: failed: {found.error}")
    for notice in found.notices:
        target = notice.name if notice.kind == "Node" else f"{notice.kind} {notice.name}"
        lines.append(f"  event {notice.reason} on {target}: {notice.message}")
    return lines


def _money(command: Command) -> str:
    return f" saves ${command.saving:.2f}/h" if command.saving is not None else ""


def _options(words: list[str]) -> Options:
    return dict(word.split("=", 1) for word in words if "=" in word)


def _budget(text: str) -> Budget:
    reason, colon, nodes = text.partition(":")
    return Budget(nodes=nodes, reasons=[reason]) if colon else Budget(nodes=text)


def _pod(text: str) -> Pod:
    name, cpu, *flags = text.split(":")
    owner = "DaemonSet" if "daemon" in flags else "StatefulSet" if "stateful" in flags else "ReplicaSet"
    app = next((flag[4:] for flag in flags if flag.startswith("app=")), name)
    return pod(
        name,
        cpu=float(cpu),
        owner=owner,
        match={"app": app},
        deleting="terminating" in flags,
        annotations={labels.DO_NOT_DISRUPT: "true"} if "protected" in flags else {},
    )
