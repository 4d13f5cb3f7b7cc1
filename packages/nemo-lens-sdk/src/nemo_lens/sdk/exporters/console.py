"""The ``console`` exporter: one compact JSON object a line on standard output, in the SDK's own schema."""

from __future__ import annotations

import io
import json
import os
import select
import sys
import threading
from typing import TYPE_CHECKING, Any

from nemo_lens.sdk._compat import log_to_json
from nemo_lens.sdk.exporters._plan import ExporterPlan, class_name
from nemo_lens.sdk.exporters._sinks import sdk_exporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO

    from nemo_lens.sdk.exporters._plan import Signal
    from nemo_lens.sdk.exporters.preferences import MetricPreferences


def _split(batch: Iterable[Any]) -> list[Any]:
    return list(batch)


def _whole(batch: Any) -> list[Any]:
    return [batch] if batch.resource_metrics else []


def _sdk_json(item: Any) -> str:
    return str(item.to_json(indent=None))


# How a batch becomes objects, and an object JSON.
_SHAPES: dict[str, tuple[Callable[[Any], list[Any]], Callable[[Any], str]]] = {
    "traces": (_split, _sdk_json),
    "metrics": (_whole, _sdk_json),
    "logs": (_split, log_to_json),
}

# Held by one batch at a time, so that lines longer than a pipe takes in one piece stay whole among ours.
_writing = threading.Lock()


def _renew_lock_in_child() -> None:
    global _writing
    _writing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock_in_child)


class ConsoleSink:
    """Writes to whatever ``sys.stdout`` is when a batch comes."""

    def __init__(self, signal: Signal) -> None:
        self._objects, self._to_json = _SHAPES[signal]

    def send(self, batch: Any) -> bool:
        """Write a line for each object; what has no JSON is left out, and raises after the others are written."""
        lines: list[str] = []
        fault: Exception | None = None
        for item in self._objects(batch):
            try:
                lines.append(_strict(self._to_json(item)))
            except Exception as error:  # noqa: BLE001 - one odd object must not take the others with it
                fault = error
        if lines:
            out = sys.stdout
            if out is None:  # pythonw and some daemons have none
                raise OSError("sys.stdout is None")
            _write(out, lines)
        if fault is not None:
            raise fault
        return True

    def flush(self, timeout_ms: float) -> bool:
        """Return True: each batch is flushed when it comes."""
        return True

    def close(self, timeout_ms: float) -> None:
        """Standard output belongs to the application and stays open."""


def plan(signal: Signal, preferences: MetricPreferences) -> ExporterPlan:
    """Plan the console exporter of a signal."""

    def make() -> Any:
        return sdk_exporter(signal, ConsoleSink(signal), f"exporter console of {signal}", preferences)

    return ExporterPlan(name="console", transport="console", make=make, component=class_name(ConsoleSink))


def _write(out: TextIO, lines: list[str]) -> None:
    descriptor = _own_descriptor(out)
    if descriptor is None:
        # One write, so that lines of other threads do not land inside ours.
        out.write("".join(lines))
        out.flush()
        return
    # Past the stream: who waits in it for a pipe that nobody reads holds its lock, and Python aborts a process that
    # ends meanwhile.
    with _writing:
        _flush(out, descriptor)
        for piece in _pieces(lines):
            _write_all(descriptor, piece)


def _own_descriptor(out: TextIO) -> int | None:
    """Return the descriptor of standard output when ``out`` is nothing but Python's stream over it."""
    # What captures output, or shows it elsewhere, has a class of its own; Windows has no poll.
    if type(out) is not io.TextIOWrapper or not hasattr(select, "poll"):
        return None
    try:
        buffer = out.buffer
        raw = buffer.raw if type(buffer) is io.BufferedWriter else buffer
        if type(raw) is io.FileIO and raw.fileno() == 1 and "{".encode(out.encoding) == b"{":
            return 1
    except ValueError:  # closed or detached: writing says so
        pass
    return None


def _flush(out: TextIO, descriptor: int) -> None:
    """Write what the program has printed so far."""
    while True:
        _wait_for_room(descriptor)
        try:
            return out.flush()
        except BlockingIOError:
            continue


def _pieces(lines: list[str]) -> Iterator[bytes]:
    """Yield whole lines together, no more than a pipe takes in one piece, and alone what is longer."""
    piece = b""
    for line in lines:
        data = line.encode("ascii")
        if piece and len(piece) + len(data) > select.PIPE_BUF:
            yield piece
            piece = b""
        piece += data
    yield piece


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            _wait_for_room(descriptor)


def _wait_for_room(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()


def _strict(text: str) -> str:
    # The SDK writes bare NaN and Infinity, which JSON does not know.
    parsed = json.loads(text, parse_constant=str)
    return json.dumps(parsed, separators=(",", ":"), allow_nan=False) + "\n"
