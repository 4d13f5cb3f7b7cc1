"""What the events of a PyTorch profiler's trace say: times, places, kinds, in the form in which they are drawn."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from nemo_lens.sdk.cli._timeline.trace_events import encoded, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SLICE, INSTANT, COUNTER = range(3)
_KINDS = {"X": SLICE, "i": INSTANT, "I": INSTANT, "C": COUNTER}
_FLOW_PHASES = {"s": True, "f": False}

# Categories of what runs on a GPU, as current and older versions spell them. Such events have the device as their pid.
_GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "Kernel", "Memcpy", "Memset"})
_HOST_CATEGORIES = frozenset({"cpu_op", "user_annotation", "python_function", "cuda_runtime", "Operator", "Runtime"})

# Timestamps are microseconds after `baseTimeNanoseconds`. Older versions write microseconds since the epoch, which is
# more than this since the year 2001.
ABSOLUTE_NS = 10**18
_MAX_NS = 2**62

# A number that may be too long for a viewer.
_LONG_NUMBER = re.compile(r"\d{19}")
_MAX_BODY = 64 * 1024
_TOO_HIGH = 2**63


class Place(NamedTuple):
    """Where an event is in its own trace. Both may be numbers or texts."""

    pid: object
    tid: object


class Drawn(NamedTuple):
    """An event that is drawn. Times are nanoseconds: of the epoch from ``ABSOLUTE_NS`` on, else of the file's base."""

    place: Place
    kind: int
    start_ns: int
    end_ns: int
    body: bytes  # name, category and arguments as JSON without braces


class FlowEnd(NamedTuple):
    """One end of an arrow, which belongs to the slice that starts at this time at this place."""

    place: Place
    time_ns: int
    begins: bool
    kind: str
    key: str  # with `kind` the same at both ends


@dataclass
class Names:
    """What the threads of a trace are called, and which pids are devices: labelled, in old versions by category."""

    threads: dict[Place, str] = field(default_factory=dict)
    gpus: set[object] = field(default_factory=set)  # pids of devices
    host_pid: int | None = None

    def learn(self, event: Mapping[str, Any]) -> None:
        """Take in a metadata event."""
        arguments = event.get("args")
        if not isinstance(arguments, dict):
            return
        place = place_of(event)
        if event.get("name") == "thread_name":
            self.threads[place] = str(arguments.get("name", "")).strip()
        elif event.get("name") == "process_labels":
            label = str(arguments.get("labels", ""))
            if label.startswith("GPU"):
                self.gpus.add(place.pid)
            elif label == "CPU" and _is_pid(place.pid):
                self.host_pid = place.pid  # type: ignore[assignment]  # _is_pid

    def see(self, place: Place, category: object) -> None:
        """Learn from an event where the process and its devices are."""
        if not isinstance(category, str):
            return
        if category in _GPU_CATEGORIES:
            self.gpus.add(place.pid)
        elif self.host_pid is None and category in _HOST_CATEGORIES and _is_pid(place.pid):
            self.host_pid = place.pid  # type: ignore[assignment]  # _is_pid


def place_of(event: Mapping[str, Any]) -> Place:
    """Return where an event is."""
    return Place(_simple(event.get("pid")), _simple(event.get("tid")))


def read_event(event: Mapping[str, Any]) -> Drawn | FlowEnd | None:
    """Return what an event is drawn as, None for one that is not drawn.

    Raises:
        ValueError: its time cannot be used.
    """
    phase = event.get("ph")
    if not isinstance(phase, str):
        return None
    place = place_of(event)
    if phase in _FLOW_PHASES:
        kind_of_flow, key = str(event.get("cat") or "flow"), str(event.get("id"))
        return FlowEnd(place, _time(event.get("ts")), _FLOW_PHASES[phase], kind_of_flow, key)
    kind = _KINDS.get(phase)
    if kind is None:
        return None
    if kind == INSTANT and not isinstance(place.pid, int):
        return None  # "Record Window End": the slice of the profiler itself, of which it is the end, is drawn
    start_ns = end_ns = _time(event.get("ts"))
    if kind == SLICE:
        end_ns += max(_nanoseconds(event.get("dur", 0)), 0)  # what was cut by the window's end may be negative
        if end_ns > _MAX_NS:
            raise ValueError(f"its dur is {str(event.get('dur'))[:40]}")
    arguments = event.get("args")
    if kind == COUNTER:
        arguments = _numbers(arguments)
        if not arguments:
            return None
    return Drawn(place, kind, start_ns, end_ns, _body(event, arguments))


def _time(microseconds: object) -> int:
    time_ns = _nanoseconds(microseconds)
    if not 0 <= time_ns <= _MAX_NS:
        raise ValueError(f"its ts is {str(microseconds)[:40]}")
    return time_ns


def _nanoseconds(microseconds: object) -> int:
    if isinstance(microseconds, int):
        return microseconds * 1000
    if isinstance(microseconds, Decimal) and microseconds.is_finite() and abs(microseconds) < _MAX_NS:
        return round(microseconds * 1000)
    raise ValueError(f"{str(microseconds)[:40]!r} is not a number of microseconds")


def _numbers(arguments: object) -> dict[str, int | Decimal]:
    """Return the arguments that a viewer can draw as a counter."""
    values: Mapping[str, Any] = arguments if isinstance(arguments, dict) else {}
    return {
        key: value
        for key, value in values.items()
        if isinstance(value, (int, Decimal)) and not isinstance(value, bool) and -_TOO_HIGH < value < _TOO_HIGH
    }


def _body(event: Mapping[str, Any], arguments: object) -> bytes:
    what: dict[str, object] = {
        "name": str(event.get("name") or "(no name)"),
        "cat": str(event.get("cat") or "profiler"),
    }
    if arguments:
        what["args"] = arguments
    text = _ENCODER.encode(what)
    if len(text) > _MAX_BODY or _LONG_NUMBER.search(text):
        text = to_json(json.loads(text))
    return encoded(text[1:-1])


def _number(value: object) -> object:
    number = float(value)  # type: ignore[arg-type]  # nothing but Decimal comes here
    return number if math.isfinite(number) else str(number)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_number)


def _is_pid(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _simple(value: object) -> object:
    return value if isinstance(value, (int, str)) else str(value)
