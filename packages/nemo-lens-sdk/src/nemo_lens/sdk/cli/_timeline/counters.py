"""Counter tracks: the numbers that metrics had, one track for each metric and attribute set of a process.

A gauge is drawn as its value from the time it was read on. A sum is drawn as its running total, whatever its
temporality: viewers make rates of it. What counts many measurements (a histogram, a summary) is drawn for each interval
between two readings, from its beginning on: the mean in the metric's unit, and on a track of its own how many there
were. A value that is no number a viewer can draw, such as a loss of NaN, becomes a mark at its time.

Of the metrics about the telemetry itself (``otel.sdk.*``) only what was lost is drawn, since it is missing there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from nemo_lens.api.semconv import ERROR_TYPE
from nemo_lens.sdk.cli._otlp_metrics import GAUGE, SUM
from nemo_lens.sdk.cli._timeline.trace_events import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from nemo_lens.sdk.cli._otlp_metrics import MetricPoint

_Series = tuple[object, ...]


class Sample(NamedTuple):
    """A trace event that lacks process and timestamp.

    Args:
        resource: of the process.
        time_ns: epoch nanoseconds.
        body: the rest of the event, as JSON without braces.
    """

    resource: Mapping[str, object]
    time_ns: int
    body: str


class _Read(NamedTuple):
    """What a series had summed and counted when it was last read."""

    start_ns: int
    time_ns: int
    total: float
    measurements: int


class Counters:
    """Makes samples of metric points, which come in the order in which a process wrote them.

    Remembers the last point of each series, of which there are as many as the processes had attribute sets.

    Args:
        process_of: returns what tells processes apart, from a resource.
    """

    def __init__(self, process_of: Callable[[Mapping[str, object]], object]) -> None:
        self._process_of = process_of
        self._last: dict[_Series, _Read] = {}
        self._scopes: dict[tuple[object, str], str] = {}

    def samples(self, point: MetricPoint) -> Iterator[Sample]:
        """Yield what is drawn of a point: nothing of one that has no time or whose interval was empty of values."""
        if point.time_ns <= 0 or _is_routine(point):
            return
        process = self._process_of(point.resource)
        name = point.name or "(no name)"
        # Two meters of one process may have an instrument of the same name: the second one's says whose it is.
        if self._scopes.setdefault((process, name), point.scope) != point.scope:
            name = f"{name} [{point.scope}]"
        if point.attributes:
            name += f" {{{', '.join(f'{key}={point.attributes[key]}' for key in sorted(point.attributes))}}}"
        series = (process, name, point.kind)
        if point.kind == GAUGE:
            if point.value is not None:
                yield _sample(point, point.time_ns, name, "value", point.value)
        elif point.kind == SUM:
            if point.value is not None:
                total = self._running_total(series, point) if point.delta else point.value
                yield _sample(point, point.time_ns, name, "total", total)
        else:
            yield from self._interval(series, name, point)

    def _running_total(self, series: _Series, point: MetricPoint) -> float:
        value = point.value or 0
        total = self._last[series].total + value if series in self._last else value
        self._last[series] = _Read(point.start_ns, point.time_ns, total, 0)
        return total

    def _interval(self, series: _Series, name: str, point: MetricPoint) -> Iterator[Sample]:
        total, measurements = point.value or 0.0, point.measurements
        begin = point.start_ns if 0 < point.start_ns <= point.time_ns else point.time_ns
        if not point.delta:
            last = self._last.get(series)
            self._last[series] = _Read(point.start_ns, point.time_ns, total, measurements)
            # Counts from the beginning again after a restart.
            if last and last.start_ns == point.start_ns and last.measurements <= measurements:
                total, measurements = total - last.total, measurements - last.measurements
                begin = min(last.time_ns, point.time_ns)
        if measurements and point.value is not None:
            yield _sample(point, begin, name, "mean", total / measurements)
        yield _sample(point, begin, f"{name} measurements", "count", measurements, unit="")


def _is_routine(point: MetricPoint) -> bool:
    """Return whether a point says of the telemetry itself that nothing was lost: of interest to a dashboard."""
    return point.name.startswith("otel.sdk.") and not (point.value and ERROR_TYPE in point.attributes)


def _sample(point: MetricPoint, time_ns: int, name: str, what: str, value: float, unit: str | None = None) -> Sample:
    # A viewer shows the argument's name behind the event's.
    unit = (point.unit if unit is None else unit).strip("{}")
    if not math.isfinite(value):
        body = f'"ph":"i","s":"p","cat":"metric","name":{to_json(f"{name} is {value}")},"args":{{}}'
    else:
        shown = f"{name} ({unit})" if unit not in ("", "1") else name
        body = f'"ph":"C","cat":"metric","name":{to_json(shown)},"args":{{{to_json(what)}:{value!r}}}'
    return Sample(point.resource, time_ns, body)
