"""The run as one picture: price per hour, nodes and pending pods over time, as SVG without any library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from pykarpenter.sim.simulate.measure import Sample

_WIDTH, _HEIGHT = 960, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 30, 30
_CHARTS: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("$ per hour", "#b8860b", lambda s: s.price_per_hour),
    ("nodes", "#2b6cb0", lambda s: float(s.nodes)),
    ("pending pods", "#c53030", lambda s: float(s.pending)),
)


def draw(title: str, samples: Sequence[Sample]) -> str:
    """The picture; its height follows the number of charts."""
    height = len(_CHARTS) * _HEIGHT + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (name, colour, value) in enumerate(_CHARTS):
        parts.extend(_chart(30 + number * _HEIGHT, name, colour, [(s.at, value(s)) for s in samples]))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _chart(top: int, name: str, colour: str, points: list[tuple[float, float]]) -> list[str]:
    end = max((at for at, _ in points), default=1.0) or 1.0
    highest = max((value for _, value in points), default=0.0) or 1.0
    bottom = top + _HEIGHT - _BOTTOM

    def place(at: float, value: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * at / end
        y = bottom - (_HEIGHT - _TOP - _BOTTOM) * value / highest
        return f"{x:.1f},{y:.1f}"

    # Values hold until the next sample, so the line is a staircase.
    corners: list[str] = []
    for index, (at, value) in enumerate(points):
        if index:
            corners.append(place(at, points[index - 1][1]))
        corners.append(place(at, value))
    labels = [
        f'<text x="{_LEFT}" y="{top + 18}" font-size="12" fill="{colour}">{escape(name)}</text>',
        f'<text x="{_LEFT - 8}" y="{top + _TOP + 4}" font-size="11" text-anchor="end">{highest:g}</text>',
        f'<text x="{_LEFT - 8}" y="{bottom + 4}" font-size="11" text-anchor="end">0</text>',
        f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}" stroke="#999"/>',
    ]
    for quarter in range(5):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * quarter / 4
        text = _time(end * quarter / 4)
        labels.append(f'<text x="{x:.0f}" y="{bottom + 16}" font-size="11" text-anchor="middle">{text}</text>')
    line = f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{" ".join(corners)}"/>'
    return [*labels, line]


def _time(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}"
