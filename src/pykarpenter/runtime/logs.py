"""Structured logs as Karpenter writes them: one JSON object a line, sampled, with secrets removed.

Keys: `level` (upper case), `time` (ISO 8601, milliseconds), `logger` (`controller`), `message`, `commit`, at debug
also `caller`, then the caller's own facts. An error value is flattened into keys; stack traces are never written.
Logging never raises and never blocks on anything but the sink.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec
import structlog

from pykarpenter.runtime.clock import Clock, SystemClock
from pykarpenter.runtime.commit import build_commit
from pykarpenter.runtime.redaction import redact

Fields = MutableMapping[str, Any]

LEVELS = {"debug": 10, "info": 20, "error": 40}
_NAMES = {"warning": "WARN", "warn": "WARN", "exception": "ERROR", "critical": "ERROR"}

# Per second and message: the first hundred, then one in a hundred (upstream's sampling).
SAMPLE_FIRST = 100
SAMPLE_THEREAFTER = 100


class Logger:
    """A logger with bound facts; cheap to make, and silent until `configure` was called."""

    __slots__ = ("_bound",)

    def __init__(self, bound: Any) -> None:
        self._bound = bound

    def bind(self, **facts: Any) -> Logger:
        return Logger(self._bound.bind(**facts))

    def debug(self, message: str, **facts: Any) -> None:
        self._bound.debug(message, **facts)

    def info(self, message: str, **facts: Any) -> None:
        self._bound.info(message, **facts)

    def error(self, message: str, **facts: Any) -> None:
        self._bound.error(message, **facts)


def get_logger(**facts: Any) -> Logger:
    """A logger that follows whatever configuration is active when it is used."""
    return Logger(structlog.get_logger(**facts))


class Sampler:
    """Drops repeats of a message within one second beyond the first hundred, keeping one in a hundred."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._counts: dict[tuple[str, str], int] = {}

    def __call__(self, _: Any, method: str, fields: Fields) -> Fields:
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second = second
            self._counts.clear()
        key = (method, str(fields.get("event", "")))
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > SAMPLE_FIRST and (count - SAMPLE_FIRST) % SAMPLE_THEREAFTER != 0:
            raise structlog.DropEvent
        return fields


class Sink:
    """Writes lines to every path of a comma-separated list (`stdout`, `stderr`, files); a failing one is reported."""

    def __init__(self, paths: str, error_paths: str = "stderr") -> None:
        self._files: list[IO[bytes]] = []
        self._targets = [self._open(path) for path in _split(paths)]
        self._error_targets = [self._open(path) for path in _split(error_paths)]

    def write(self, line: str) -> None:
        for write in self._targets:
            try:
                write(line)
            except (OSError, ValueError) as error:
                self._complain(error)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _complain(self, error: Exception) -> None:
        for write in self._error_targets:
            try:
                write(f"write error: {error}\n")
            except (OSError, ValueError):
                continue

    def _open(self, path: str) -> Callable[[str], object]:
        # The standard streams are looked up at each write: tests and services replace them.
        if path == "stdout":
            return lambda line: _to_stream(sys.stdout, line)
        if path == "stderr":
            return lambda line: _to_stream(sys.stderr, line)
        # Unbuffered: a line is on its way when `write` returns, or an error says why not.
        file = Path(path).open("ab", buffering=0)  # noqa: SIM115 - closed with the sink
        self._files.append(file)
        return lambda line: file.write(line.encode())


def _to_stream(stream: IO[str], line: str) -> None:
    stream.write(line)
    stream.flush()


_sink: Sink | None = None


def _use(sink: Sink | None) -> None:
    global _sink
    if _sink is not None:
        _sink.close()
    _sink = sink


def configure(
    level: str = "info",
    *,
    clock: Clock | None = None,
    output_paths: str = "stdout",
    error_output_paths: str = "stderr",
    commit: str | None = None,
    write: Callable[[str], None] | None = None,
) -> None:
    """Set up logging for the process; `write` takes the finished lines instead of the output paths.

    Without a known `commit` (by default the build's) lines leave the key out.
    """
    commit = build_commit() if commit is None else commit
    clock = clock or SystemClock()
    threshold = LEVELS[level]
    _use(None)
    if write is None:
        sink = Sink(output_paths, error_output_paths)
        _use(sink)
        write = sink.write
    line_writer = write
    structlog.configure(
        processors=[
            Sampler(clock),
            structlog.contextvars.merge_contextvars,
            _flatten_errors,
            _Renderer(clock, commit, with_caller=threshold <= LEVELS["debug"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: _LineLogger(line_writer),
        cache_logger_on_first_use=False,
    )


def silence() -> None:
    """Write nothing: the state before `configure`, so that libraries and tests stay quiet."""
    _use(None)
    structlog.configure(
        processors=[_drop],
        wrapper_class=structlog.make_filtering_bound_logger(50),
        logger_factory=lambda *_: _LineLogger(lambda _line: None),
        cache_logger_on_first_use=False,
    )


class _LineLogger:
    """What structlog calls with the rendered line, whatever the level."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = self.msg = write


class _Renderer:
    def __init__(self, clock: Clock, commit: str, *, with_caller: bool) -> None:
        self._clock = clock
        self._commit = commit
        self._with_caller = with_caller

    def __call__(self, _: Any, method: str, fields: Fields) -> str:
        line: dict[str, Any] = {
            "level": _NAMES.get(method, method.upper()),
            "time": format_log_time(self._clock.now()),
            "logger": "controller",
        }
        if self._with_caller:
            line["caller"] = _caller()
        line["message"] = redact("message", str(fields.pop("event", "")))
        if self._commit:
            line["commit"] = self._commit
        for key, value in fields.items():
            line[key] = redact(key, value)
        return msgspec.json.encode(line, enc_hook=str).decode() + "\n"


def format_log_time(epoch_s: float) -> str:
    """ISO 8601 in UTC with milliseconds: `2026-01-02T03:04:05.678Z`."""
    whole = datetime.fromtimestamp(epoch_s, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{whole.microsecond // 1000:03d}Z"


def _flatten_errors(_: Any, __: str, fields: Fields) -> Fields:
    """Errors become their text, and their plain attributes keys of their own (`error-code`, `error-reason`)."""
    for key in [key for key, value in fields.items() if isinstance(value, BaseException)]:
        error = fields[key]
        fields[key] = str(error) or type(error).__name__
        for name, value in _plain_attributes(error).items():
            fields.setdefault(f"{key}-{name}", value)
    fields.pop("exc_info", None)
    fields.pop("stack_info", None)
    return fields


def _plain_attributes(error: BaseException) -> Mapping[str, Any]:
    facts: dict[str, Any] = {"kind": type(error).__name__}
    for name in ("code", "reason"):
        value = getattr(error, name, None)
        if isinstance(value, str | int):
            facts[name] = value
    return facts


_OWN_FRAMES = re.compile(r"[/\\](structlog[/\\]|pykarpenter[/\\]runtime[/\\]logs\.py$)")


def _caller() -> str:
    frame = sys._getframe(1)
    while frame.f_back is not None and _OWN_FRAMES.search(frame.f_code.co_filename):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name}:{frame.f_lineno}"


def _drop(_: Any, __: str, fields: Fields) -> Fields:
    raise structlog.DropEvent


def _split(paths: str) -> Sequence[str]:
    return [path.strip() for path in paths.split(",") if path.strip()]


silence()
