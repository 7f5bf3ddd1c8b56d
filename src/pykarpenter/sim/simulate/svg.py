"""A run as one picture: price per hour, nodes and pending pods over time; or two runs side by side: $ and evictions.

SVG without any library.
"""

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


_COMPARED: tuple[tuple[str, Callable[[Sample], float]], ...] = (
    ("$ so far", lambda s: s.cost),
    ("evictions so far", lambda s: float(s.evictions)),
    ("$ per hour", lambda s: s.price_per_hour),
)
_OURS, _OTHERS = "#2f855a", "#b83280"
Line = tuple[str, str, list[tuple[float, float]]]


def draw(title: str, samples: Sequence[Sample]) -> str:
    """The picture of one run; its height follows the number of charts."""
    return _picture(title, [[(name, colour, [(s.at, value(s)) for s in samples])] for name, colour, value in _CHARTS])


def compare(title: str, ours: Sequence[Sample], name: str, others: Sequence[Sample]) -> str:
    """Two runs of one scenario: what they cost and whom they disturbed."""
    charts: list[list[Line]] = []
    for what, value in _COMPARED:
        charts.append(
            [
                (f"{what}: pykarpenter", _OURS, [(s.at, value(s)) for s in ours]),
                (name, _OTHERS, [(s.at, value(s)) for s in others]),
            ]
        )
    return _picture(title, charts)


def _picture(title: str, charts: Sequence[Sequence[Line]]) -> str:
    height = len(charts) * _HEIGHT + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for number, lines in enumerate(charts):
        parts.extend(_chart(30 + number * _HEIGHT, lines))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _chart(top: int, lines: Sequence[Line]) -> list[str]:
    points = [point for _, _, listed in lines for point in listed]
    end = max((at for at, _ in points), default=1.0) or 1.0
    highest = max((value for _, value in points), default=0.0) or 1.0
    bottom = top + _HEIGHT - _BOTTOM

    def place(at: float, value: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * at / end
        y = bottom - (_HEIGHT - _TOP - _BOTTOM) * value / highest
        return f"{x:.1f},{y:.1f}"

    labels = [
        f'<text x="{_LEFT - 8}" y="{top + _TOP + 4}" font-size="11" text-anchor="end">{highest:g}</text>',
        f'<text x="{_LEFT - 8}" y="{bottom + 4}" font-size="11" text-anchor="end">0</text>',
        f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}" stroke="#999"/>',
    ]
    for quarter in range(5):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * quarter / 4
        text = _time(end * quarter / 4)
        labels.append(f'<text x="{x:.0f}" y="{bottom + 16}" font-size="11" text-anchor="middle">{text}</text>')
    for number, (name, colour, listed) in enumerate(lines):
        x = _LEFT + 260 * number
        labels.append(f'<text x="{x}" y="{top + 18}" font-size="12" fill="{colour}">{escape(name)}</text>')
        corners = " ".join(place(at, value) for at, value in _staircase(listed))
        labels.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{corners}"/>')
    return labels


def _staircase(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Values hold until the next sample."""
    corners: list[tuple[float, float]] = []
    for index, (at, value) in enumerate(points):
        if index:
            corners.append((at, points[index - 1][1]))
        corners.append((at, value))
    return corners


def _time(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}"
