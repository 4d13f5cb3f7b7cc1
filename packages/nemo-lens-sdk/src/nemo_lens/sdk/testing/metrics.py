"""Recorded metrics as a test reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

# Name of the SDK's class of data -> kind of metric.
_KINDS = {"Sum": "sum", "Gauge": "gauge", "Histogram": "histogram", "ExponentialHistogram": "histogram"}


class InMemoryMetricExporter(MetricExporter):
    """Keeps the last of each series: OpenTelemetry 1.38 collects a gauge only once."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[Any, RecordedMetric] = {}

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Keep each series in place of the same one of an earlier collection."""
        for series in _series(metrics_data):
            before = self._last.get(series.key)
            # A collection has the exemplars of its own measurements alone.
            series.exemplars[:] = [*(before.exemplars if before else ()), *getattr(series.point, "exemplars", ())]
            self._last[series.key] = series
        return MetricExportResult.SUCCESS

    def recorded(self) -> list[RecordedMetric]:
        """Return each series that has been collected."""
        return list(self._last.values())

    def clear(self) -> None:
        """Forget what has been collected."""
        self._last.clear()

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Return True: nothing waits."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Do nothing: what was collected can still be read."""


@dataclass(frozen=True, eq=False, repr=False)
class RecordedMetric:
    """One series of a metric: its name, and the attributes it was recorded with.

    ``kind`` is ``gauge``, ``sum`` (of a counter or up-down counter) or ``histogram``; ``scope`` is the name of the
    instrumentation scope, ``exemplars`` are OpenTelemetry's, and ``point`` is its data point, with bucket bounds.
    """

    name: str
    kind: str
    unit: str
    description: str
    attributes: Mapping[str, Any]
    scope: str
    point: Any
    exemplars: list[Any] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, frozenset[tuple[str, Any]]]:
        """What tells this series from all others."""
        return self.scope, self.name, frozenset(self.attributes.items())

    @property
    def value(self) -> float:
        """The last value of a gauge, the sum of a counter since the start of the test; int or float as recorded.

        Raises:
            AttributeError: for a histogram, which has ``count``, ``sum``, ``min`` and ``max``.
        """
        value: float = self._of_the_point("value", "gauge", "sum")
        return value

    @property
    def count(self) -> int:
        """How many values a histogram was given."""
        return int(self._of_the_point("count", "histogram"))

    @property
    def sum(self) -> float:
        """The sum of the values a histogram was given."""
        return float(self._of_the_point("sum", "histogram"))

    @property
    def min(self) -> float:
        """The smallest value a histogram was given."""
        return float(self._of_the_point("min", "histogram"))

    @property
    def max(self) -> float:
        """The largest value a histogram was given."""
        return float(self._of_the_point("max", "histogram"))

    def _of_the_point(self, name: str, *kinds: str) -> Any:
        if self.kind not in kinds:
            has = "count, sum, min and max" if self.kind == "histogram" else "a value"
            raise AttributeError(f"{self.name!r} is a {self.kind}, which has {has} and no {name}")
        return getattr(self.point, name)

    def __str__(self) -> str:
        attributes = "".join(f" {key}={value!r}" for key, value in sorted(self.attributes.items()))
        if self.kind == "histogram":
            return f"{self.name}{attributes}: histogram, count {self.count}, sum {self.sum:g}"
        return f"{self.name}{attributes}: {self.kind} {self.value!r}"

    def __repr__(self) -> str:
        return f"<RecordedMetric {self}>"


def _series(collected: MetricsData) -> Iterator[RecordedMetric]:
    for of_resource in collected.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                for point in metric.data.data_points:
                    yield RecordedMetric(
                        name=metric.name,
                        kind=_KINDS.get(type(metric.data).__name__, type(metric.data).__name__),
                        unit=metric.unit or "",
                        description=metric.description or "",
                        attributes=dict(point.attributes or {}),
                        scope=of_scope.scope.name,
                        point=point,
                    )
