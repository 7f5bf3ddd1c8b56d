"""Gauges of thousands of objects as text that is ready to be sent.

An object's lines are rendered when it changes and joined when somebody scrapes, so that a scrape of 10,000 nodes costs
copying and not formatting. Values that grow by themselves (ages) are kept as the moment they count from. Writing
happens on the event loop, reading in another thread: a reader copies a family's dict in one step and never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from pykarpenter.runtime.metric_catalog import CATALOG

# Lines joined at a time: small enough that the interpreter lock comes free often.
_CHUNK = 2_000

# Family and labels of a series with its value, or with the wall time that its age counts from. Labels that many series
# share can come as `label_text`, rendered once.
Labels = Mapping[str, str] | str
Series = tuple[str, Labels, float]


def label_text(labels: Labels) -> str:
    """`{a="b"}` in the exposition's spelling."""
    if isinstance(labels, str):
        return labels
    if not labels:
        return ""
    parts = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    return "{" + ",".join(parts) + "}"


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


class GaugeTable:
    """The gauges of one kind of object, by the object's key; `now` is wall time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._values: dict[str, dict[str, bytes]] = {}
        self._ages: dict[str, dict[str, list[tuple[str, float]]]] = {}

    def put(self, key: str, values: Iterable[Series] = (), ages: Iterable[Series] = ()) -> None:
        """Show exactly these series of an object; what it showed before is gone."""
        texts: dict[str, list[str]] = {}
        for family, labels, value in values:
            texts.setdefault(family, []).append(f"{family}{label_text(labels)} {value:.12g}\n")
        since: dict[str, list[tuple[str, float]]] = {}
        for family, labels, begin in ages:
            since.setdefault(family, []).append((f"{family}{label_text(labels)} ", begin))
        for family in self._values.keys() - texts.keys():
            self._values[family].pop(key, None)
        for family in self._ages.keys() - since.keys():
            self._ages[family].pop(key, None)
        for family, lines in texts.items():
            self._values.setdefault(family, {})[key] = "".join(lines).encode()
        for family, begins in since.items():
            self._ages.setdefault(family, {})[key] = begins

    def drop(self, key: str) -> None:
        """The object is gone, and its series with it."""
        for family in self._values.values():
            family.pop(key, None)
        for ages in self._ages.values():
            ages.pop(key, None)

    def chunks(self) -> Iterator[bytes]:
        """The exposition, a piece at a time; safe in another thread."""
        for family in sorted(self._values):
            texts = list(self._values[family].values())
            yield from _with_head(family, (b"".join(texts[at : at + _CHUNK]) for at in range(0, len(texts), _CHUNK)))
        now = self._now()
        for family in sorted(self._ages):
            begins = list(self._ages[family].values())
            yield from _with_head(
                family, (_aged(begins[at : at + _CHUNK], now) for at in range(0, len(begins), _CHUNK))
            )


def _aged(begins: list[list[tuple[str, float]]], now: float) -> bytes:
    lines = [f"{text}{max(0.0, now - begin):.3f}\n" for rows in begins for text, begin in rows]
    return "".join(lines).encode()


def _with_head(family: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(chunks, None)
    if first is None:
        return
    metric = CATALOG.get(family)
    text = metric.help if metric is not None else "Not described"
    yield f"# HELP {family} {text}\n# TYPE {family} gauge\n".encode() + first
    yield from chunks
