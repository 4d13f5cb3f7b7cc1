"""Number points of the metrics of one OTLP JSON message."""

from __future__ import annotations

from typing import Any, NamedTuple

from nemo_lens.sdk.cli._otlp_values import attributes, integer, object_of, objects, real, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

GAUGE, SUM = "gauge", "sum"
# What an instrument's points are called in a metric; those after the first two count and sum many measurements.
_KINDS = (GAUGE, SUM, "histogram", "exponentialHistogram", "summary")
_TEMPORALITIES = {"AGGREGATION_TEMPORALITY_DELTA": 1, "AGGREGATION_TEMPORALITY_CUMULATIVE": 2}
_DELTA = 1
# https://opentelemetry.io/docs/specs/otel/metrics/data-model/#no-recorded-value
_NO_RECORDED_VALUE = 1


class MetricPoint(NamedTuple):
    """A number that a metric had, with the resource and the scope it came from.

    Args:
        name: of the metric.
        unit: as the instrument gave it, in UCUM (``s``, ``By``, ``{token}``, ``1``).
        kind: ``gauge``, ``sum``, ``histogram``, ``exponentialHistogram`` or ``summary``.
        delta: whether the point is about the time since the one before it, and not since ``start_ns`` for all.
        start_ns: when its interval began in epoch nanoseconds, 0 for unknown.
        time_ns: when it was read, in epoch nanoseconds.
        value: of a gauge or a sum; the sum of what was measured for the others, None where it was not recorded.
        measurements: how many the point stands for; 0 for a gauge or a sum.
        attributes: that tell the series of one metric apart.
        resource: of the process.
        scope: the meter's name.
    """

    name: str
    unit: str
    kind: str
    delta: bool
    start_ns: int
    time_ns: int
    value: int | float | None
    measurements: int
    attributes: Mapping[str, object]
    resource: Mapping[str, object]
    scope: str


def points_of(resource_metrics: object, skipped: Callable[[str], None]) -> Iterator[MetricPoint]:
    """Yield the number points of the ``resourceMetrics`` of a message.

    Points that say that nothing was recorded are left out.

    Args:
        resource_metrics: the decoded JSON.
        skipped: called with the reason for each metric or point that is malformed, while the others are used.

    Raises:
        ValueError: what is around the metrics is malformed.
    """
    for group in objects(resource_metrics, "resourceMetrics"):
        resource = attributes(object_of(group.get("resource"), "resource").get("attributes"))
        for scope_group in objects(group.get("scopeMetrics"), "scopeMetrics"):
            scope = text(object_of(scope_group.get("scope"), "scope").get("name"), "scope.name")
            for metric in objects(scope_group.get("metrics"), "metrics"):
                try:
                    yield from _points(metric, resource, scope, skipped)
                except ValueError as error:  # the others of the line are good
                    skipped(f"metric {str(metric.get('name'))[:80]!r}: {error}")


def _points(
    metric: dict[str, Any], resource: Mapping[str, object], scope: str, skipped: Callable[[str], None]
) -> Iterator[MetricPoint]:
    name, unit = text(metric.get("name"), "name"), text(metric.get("unit"), "unit")
    for kind in _KINDS:
        data = object_of(metric.get(kind), kind)
        temporality = data.get("aggregationTemporality", 0)
        delta = integer(_TEMPORALITIES.get(str(temporality), temporality), "aggregationTemporality") == _DELTA
        for raw in objects(data.get("dataPoints"), f"{kind}.dataPoints"):
            try:
                if integer(raw.get("flags"), "flags") & _NO_RECORDED_VALUE:
                    continue
                yield MetricPoint(
                    name,
                    unit,
                    kind,
                    delta,
                    integer(raw.get("startTimeUnixNano"), "startTimeUnixNano"),
                    integer(raw.get("timeUnixNano"), "timeUnixNano"),
                    _number(raw) if kind in (GAUGE, SUM) else _total(raw),
                    integer(raw.get("count"), "count"),
                    attributes(raw.get("attributes")),
                    resource,
                    scope,
                )
            except ValueError as error:
                skipped(f"metric {name[:80]!r}: {error}")


def _number(raw: dict[str, Any]) -> int | float:
    if "asInt" in raw:
        return integer(raw["asInt"], "asInt")
    if "asDouble" in raw:
        return real(raw["asDouble"], "asDouble")
    raise ValueError("neither asInt nor asDouble is there")


def _total(raw: dict[str, Any]) -> float | None:
    return None if raw.get("sum") is None else real(raw["sum"], "sum")
