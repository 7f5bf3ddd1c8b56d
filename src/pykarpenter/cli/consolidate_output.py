"""How `pykarpenter consolidate` shows its answer: a table, JSON, and a picture of cost against evictions."""

from __future__ import annotations

import math
from typing import Any
from xml.sax.saxutils import escape

from pykarpenter.core.disruption.fleet_savings import FleetSavings, Saving

_SHOWN = 3
WIDTH, HEIGHT, MARGIN = 720, 400, 60


def values(answer: FleetSavings, eviction_price: float) -> dict[str, Any]:
    """The answer for programs."""
    return {
        "pricePerHour": round(answer.price_now, 6),
        "pricePerHourAfter": round(answer.price_after, 6),
        "displacedPods": answer.displaced,
        "lowerBound": round(answer.lower_bound, 6),
        "gap": round(answer.gap, 6),
        "gapAfter": round(_gap_after(answer), 6),
        "evictionPrice": eviction_price,
        "commands": [_command(item, eviction_price) for item in answer.commands],
        "karpenterNext": None if answer.compatible is None else answer.compatible.text(),
        "curve": [{"displacedPods": d, "pricePerHour": round(p, 6)} for d, p in answer.curve],
    }


def _command(item: Saving, eviction_price: float) -> dict[str, Any]:
    return {
        "removed": list(item.removed),
        "replacements": [
            {
                "nodePool": claim.node_pool,
                "instanceType": claim.choice.instance_type,
                "zone": claim.choice.zone,
                "capacityType": claim.choice.capacity_type,
                "price": claim.choice.price,
                "pods": list(claim.pods),
            }
            for claim in item.replacements
        ],
        "displacedPods": item.displaced,
        "savingPerHour": round(item.saving, 6),
        "payBackHours": round(item.pay_back_hours(eviction_price), 3),
    }


def lines(answer: FleetSavings, eviction_price: float) -> list[str]:
    """The answer for people."""
    found = [f"{answer.machines} nodes, {answer.movable} of them may go now, ${answer.price_now:.4f}/h"]
    if not answer.commands:
        found.append(_quiet(answer))
        return found
    rows = [("#", "NODES THAT GO", "NODES THAT COME", "PODS", "SAVES $/H", "PAYS BACK")]
    for number, item in enumerate(answer.commands, 1):
        hours = f"{item.pay_back_hours(eviction_price):.1f} h"
        coming = ", ".join(f"{c.choice.instance_type} ({c.choice.capacity_type})" for c in item.replacements)
        rows.append(
            (str(number), _some(item.removed), coming or "none", str(item.displaced), f"{item.saving:.4f}", hours)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    found += ["", *("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows), ""]
    saved = answer.price_now - answer.price_after
    found.append(
        f"${answer.price_now:.4f}/h -> ${answer.price_after:.4f}/h: saves ${saved:.4f}/h "
        f"for {answer.displaced} displaced pods (each weighed ${eviction_price:g}/h)"
    )
    if answer.lower_bound > 0:
        found.append(
            f"lower bound ${answer.lower_bound:.4f}/h: {answer.gap:.1%} above it now, {_gap_after(answer):.1%} after"
        )
    if answer.compatible is not None:
        theirs = answer.compatible
        coming = ", ".join(claim.choice.instance_type for claim in theirs.replacements) or "none"
        found.append(
            f"Karpenter's search alone would start with {len(theirs.nodes)} nodes ({_some(theirs.nodes)}) -> {coming}: "
            f"${theirs.saving or 0.0:.4f}/h for {theirs.pod_count} pods"
        )
    return found


def _quiet(answer: FleetSavings) -> str:
    if answer.lower_bound <= 0:
        return "nothing worth moving"
    return f"within {max(answer.gap, 0.0):.1%} of the optimum, nothing worth moving"


def _gap_after(answer: FleetSavings) -> float:
    return answer.price_after / answer.lower_bound - 1 if answer.lower_bound > 0 else 0.0


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def picture(answer: FleetSavings) -> str:
    """Cost against evictions: the planner's curve, today, the verified plan, and the bound."""
    points = [*answer.curve, (0.0, answer.price_now), (float(answer.displaced), answer.price_after)]
    most = max(1.0, *(displaced for displaced, _ in points))
    prices = [price for _, price in points] + ([answer.lower_bound] if answer.lower_bound > 0 else [])
    low, high = min(prices), max(prices)
    low, high = low - (high - low) * 0.05 - 1e-9, high + (high - low) * 0.05 + 1e-9

    def at(displaced: float, price: float) -> tuple[float, float]:
        x = MARGIN + displaced / most * (WIDTH - 2 * MARGIN)
        return round(x, 1), round(HEIGHT - MARGIN - (price - low) / (high - low) * (HEIGHT - 2 * MARGIN), 1)

    curve = " ".join("{},{}".format(*at(*point)) for point in answer.curve)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<polyline points="{curve}" fill="none" stroke="#3366aa" stroke-width="2"/>',
        _dot(at(0.0, answer.price_now), "#888888", f"today ${answer.price_now:.2f}/h"),
        _dot(at(float(answer.displaced), answer.price_after), "#118833", f"verified ${answer.price_after:.2f}/h"),
    ]
    if answer.lower_bound > 0:
        y = at(0.0, answer.lower_bound)[1]
        parts.append(
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y}" y2="{y}" stroke="#aa3333" stroke-dasharray="6 4"/>'
        )
        parts.append(f'<text x="{MARGIN}" y="{y + 16}" fill="#aa3333">bound ${answer.lower_bound:.2f}/h</text>')
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 15}" text-anchor="middle">displaced pods</text>')
    parts.append(f'<text x="{MARGIN}" y="{HEIGHT - 35}">0</text>')
    parts.append(f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 35}" text-anchor="end">{math.ceil(most)}</text>')
    parts.append(f'<text x="{MARGIN}" y="30">$/h</text></svg>')
    return "\n".join(parts) + "\n"


def _dot(place: tuple[float, float], colour: str, text: str) -> str:
    x, y = place
    return f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/><text x="{x + 8}" y="{y - 8}">{escape(text)}</text>'
