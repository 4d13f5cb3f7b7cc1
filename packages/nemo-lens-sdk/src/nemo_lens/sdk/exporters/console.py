"""The ``console`` exporter: one compact JSON object a line on standard output, in the SDK's own schema."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from nemo_lens.sdk._compat import log_to_json
from nemo_lens.sdk.exporters._plan import ExporterPlan, class_name
from nemo_lens.sdk.exporters._sinks import sdk_exporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
            # One write, so that lines of other threads do not land inside ours.
            out.write("".join(lines))
            out.flush()
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


def _strict(text: str) -> str:
    # The SDK writes bare NaN and Infinity, which JSON does not know.
    parsed = json.loads(text, parse_constant=str)
    return json.dumps(parsed, separators=(",", ":"), allow_nan=False) + "\n"
