"""How the demonstration looks: a live view on a terminal, plain lines everywhere else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pykarpenter.sim.demo.picture import Picture

_BAR = 16
_LINES = 14


class View(Protocol):
    def say(self, sentence: str) -> None: ...

    def show(self, chapter: str, picture: Picture) -> None: ...

    def close(self) -> None: ...


class PlainView:
    """One line for each sentence, and one whenever the numbers changed."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._started = time.monotonic()
        self._last = ""

    def say(self, sentence: str) -> None:
        self._write(f"{time.monotonic() - self._started:6.1f} s  {sentence}")

    def show(self, chapter: str, picture: Picture) -> None:
        line = (
            f"[{chapter}] pending {picture.pending}, running {picture.running}, "
            f"nodes {len(picture.nodes)}, ${picture.price_per_hour:.2f}/h"
        )
        if line != self._last:
            self._last = line
            self.say(line)

    def close(self) -> None:
        pass


class LiveView:
    """The whole screen, redrawn a few times a second."""

    def __init__(self, header: str) -> None:
        self._header = header
        self._sentences: deque[str] = deque(maxlen=_LINES)
        self._started = time.monotonic()
        self._live = Live(console=Console(), refresh_per_second=8)
        self._live.start()

    def say(self, sentence: str) -> None:
        self._sentences.append(f"{time.monotonic() - self._started:5.0f} s  {sentence}")

    def show(self, chapter: str, picture: Picture) -> None:
        facts = Text.assemble(
            (f"{chapter}   ", "bold"),
            ("pending ", "dim"),
            (str(picture.pending), "bold red" if picture.pending else "green"),
            ("   running ", "dim"),
            (str(picture.running), "bold"),
            ("   nodes ", "dim"),
            (str(len(picture.nodes)), "bold"),
            ("   bill ", "dim"),
            (f"${picture.price_per_hour:.2f}/h", "bold yellow"),
        )
        story = Text("\n".join(self._sentences))
        self._live.update(
            Group(Text(self._header, style="dim"), facts, _table(picture), Panel(story, title="decisions"))
        )

    def close(self) -> None:
        self._live.stop()


def _table(picture: Picture) -> Table:
    table = Table(expand=False, pad_edge=False, box=None)
    for column in ("node", "type", "zone", "capacity", "$/h", "pods", "cpu", "memory", "state"):
        table.add_column(column, header_style="dim", justify="right" if column in ("$/h", "pods") else "left")
    for node in picture.nodes:
        table.add_row(
            node.name,
            node.instance_type,
            node.zone,
            node.capacity_type,
            f"{node.price:.3f}",
            str(node.pods),
            _bar(node.cpu),
            _bar(node.memory),
            Text(node.state, style=_STYLE.get(node.state, "")),
        )
    return table


_STYLE = {"ready": "green", "booting": "yellow", "joining": "yellow", "registered": "yellow", "draining": "red"}


def _bar(share: float) -> Text:
    filled = min(_BAR, round(share * _BAR))
    return Text("█" * filled, style="cyan") + Text("░" * (_BAR - filled), style="dim") + Text(f" {share:4.0%}")
