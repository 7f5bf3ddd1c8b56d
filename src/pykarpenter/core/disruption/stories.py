"""Explanations as lines of text and as plain values: one rendering behind `explain`, transcripts and JSON."""

from __future__ import annotations

from typing import Any

from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.core.disruption.blockers import Blocker
from pykarpenter.core.disruption.commands import Command
from pykarpenter.core.disruption.explain import Finding, NodeStory, PoolStory, money
from pykarpenter.core.disruption.settings import UNLIMITED


def node_lines(story: NodeStory) -> list[str]:
    kind = "/".join(filter(None, (story.instance_type, story.capacity_type, story.zone))) or "unknown"
    lines = [
        f"Node {story.node} (NodeClaim {story.claim or 'none'}, NodePool {story.pool or 'none'})",
        f"  runs as {kind} for {money(story.price)} with {len(story.pods)} pod(s) that need room elsewhere",
    ]
    if story.next_command is not None:
        lines.append(f"  next pass: {story.next_command.text()}")
    elif story.blocker is not None:
        lines.append(f"  stays: {story.blocker.text()}")
    elif story.ahead is not None:
        lines.append(f"  waits its turn, the next pass is {story.ahead.text()}")
    for finding in story.findings:
        if finding.command is not None:
            lines.extend(_command_lines(finding, finding.command))
    # Most machines are held by one thing for every method; it is said once.
    held: dict[Blocker, list[str]] = {}
    for finding in story.findings:
        if finding.blocker is not None:
            held.setdefault(finding.blocker, []).append(str(finding.method))
    for blocker, methods in held.items():
        lines.append(f"  {', '.join(methods)}: {blocker.text()} [{blocker.why}]")
        lines.extend(f"    {extra}" for extra in blocker_details(blocker))
    return lines


def _command_lines(finding: Finding, command: Command) -> list[str]:
    worth = f", saves {money(command.saving)}" if command.saving is not None else ""
    return [f"  {finding.method}: would {command.decision}{worth}", *_placement_lines(command)]


def blocker_details(blocker: Blocker) -> list[str]:
    """Objects in the way, the end of a wait, and the prices that were compared."""
    lines = [f"in the way: {name}" for name in blocker.objects[:5]]
    if len(blocker.objects) > 5:
        lines.append(f"and {len(blocker.objects) - 5} more")
    if blocker.until is not None:
        lines.append(f"until {format_timestamp(blocker.until)}")
    return lines


def _placement_lines(command: Command) -> list[str]:
    lines = [f"    {len(item.pods)} pod(s) to {item.node}" for item in command.placements]
    for claim in command.replacements:
        kind = claim.choice.instance_type or "machine"
        lines.append(f"    {len(claim.pods)} pod(s) to a new {kind} for {money(claim.choice.price)}")
    return lines


def pool_lines(story: PoolStory) -> list[str]:
    lines = [f"NodePool {story.pool}: {story.nodes} node(s)"]
    for allowance in story.allowances:
        allowed = "any number" if allowance.allowed >= UNLIMITED else str(allowance.allowed)
        usable = "any number" if allowance.allowed >= UNLIMITED else str(allowance.usable)
        state = f"{allowed} of {allowance.total} may be out, {allowance.consumed} are, {usable} more may"
        lines.append(f"  {allowance.reason}: {state}")
    lines.extend(f"  budget: {text}" for text in story.budgets)
    lines.extend(f"  unreadable budget, nothing is disrupted: {text}" for text in story.problems)
    if story.not_ready:
        lines.append(f"  not ready, so nothing is launched, replacements included: {story.not_ready}")
    if story.hold is not None:
        lines.append(f"  on hold: {story.hold.text()}")
    lines.extend(f"  {count} node(s) stay: {why}" for why, count in story.blocked)
    lines.extend(f"  next pass: {command.text()}" for command in story.commands)
    return lines


def blocker_values(blocker: Blocker | None) -> dict[str, Any] | None:
    if blocker is None:
        return None
    values: dict[str, Any] = {"why": str(blocker.why), "message": blocker.text(), "objects": list(blocker.objects)}
    if blocker.until is not None:
        values["until"] = format_timestamp(blocker.until)
    if blocker.price_now is not None:
        values["pricePerHour"] = blocker.price_now
        values["cheapestReplacementPerHour"] = blocker.price_found
    return values


def command_values(command: Command | None) -> dict[str, Any] | None:
    if command is None:
        return None
    return {
        "id": command.id,
        "method": str(command.method),
        "reason": str(command.reason),
        "decision": str(command.decision),
        "nodes": list(command.nodes),
        "pods": sorted(key for target in command.targets for key in target.pods),
        "replacements": [
            {
                "nodePool": claim.node_pool,
                "instanceType": claim.choice.instance_type,
                "capacityType": claim.choice.capacity_type,
                "pricePerHour": claim.choice.price,
                "options": len(claim.instance_types),
            }
            for claim in command.replacements
        ],
        "savingPerHour": command.saving,
    }


def node_values(story: NodeStory) -> dict[str, Any]:
    return {
        "node": story.node,
        "nodeClaim": story.claim,
        "nodePool": story.pool,
        "instanceType": story.instance_type,
        "capacityType": story.capacity_type,
        "zone": story.zone,
        "pricePerHour": story.price,
        "pods": list(story.pods),
        "rescheduleCost": story.reschedule_cost,
        "blocker": blocker_values(story.blocker),
        "nextCommand": command_values(story.next_command),
        "ahead": command_values(story.ahead),
        "methods": [
            {
                "method": str(finding.method),
                "command": command_values(finding.command),
                "blocker": blocker_values(finding.blocker),
            }
            for finding in story.findings
        ],
    }


def pool_values(story: PoolStory) -> dict[str, Any]:
    return {
        "nodePool": story.pool,
        "nodes": story.nodes,
        "allowances": [
            {
                "reason": str(item.reason),
                "total": item.total,
                "allowed": None if item.allowed >= UNLIMITED else item.allowed,
                "consumed": item.consumed,
                "usable": None if item.allowed >= UNLIMITED else item.usable,
            }
            for item in story.allowances
        ],
        "budgets": list(story.budgets),
        "problems": list(story.problems),
        "notReady": story.not_ready,
        "hold": blocker_values(story.hold),
        "blocked": [{"why": why, "nodes": count} for why, count in story.blocked],
        "nextCommands": [command_values(command) for command in story.commands],
    }
