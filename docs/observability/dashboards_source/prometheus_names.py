"""The names that Prometheus and what follows it give to metrics and attributes of OpenTelemetry.

As in https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/, with the ends for units and
counters that Prometheus 3 adds by default and VictoriaMetrics with ``-opentelemetry.usePrometheusNaming``.
"""

from __future__ import annotations

import re

from nemo_lens.api import semconv

from .collector_metrics import COLLECTOR_ATTRIBUTES, COLLECTOR_METRICS

# UCUM, as far as it occurs in metrics.
_UNITS: dict[str, str] = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tebibytes",
    "Cel": "celsius",
    "Hz": "hertz",
    "J": "joules",
    "W": "watts",
    "V": "volts",
    "A": "amperes",
    "%": "percent",
}
_PER: dict[str, str] = {"s": "second", "min": "minute", "h": "hour", "d": "day"}
# What each kind is stored as: the ends of the names of its series.
PARTS: dict[str, tuple[str, ...]] = {
    "gauge": ("",),
    "counter": ("",),
    "up_down_counter": ("",),
    "histogram": ("bucket", "sum", "count"),
}
METRICS: dict[str, tuple[str, str]] = {**semconv.METRIC_FIELDS, **COLLECTOR_METRICS}
_ATTRIBUTES = frozenset(
    (*semconv.RESOURCE_FIELDS, *semconv.SPAN_FIELDS, *semconv.OTEL_SDK_METRIC_ATTRIBUTES, *COLLECTOR_ATTRIBUTES)
)
# The bound of a bucket: the one label that is not an attribute.
LE = "le"


def metric_name(name: str, kind: str, unit: str) -> str:
    """Return the Prometheus name of a metric, without the end of a part of a histogram.

    Args:
        name: OpenTelemetry name, such as ``dl.training.step.duration``.
        kind: ``gauge``, ``counter``, ``up_down_counter`` or ``histogram``.
        unit: UCUM; what stands in braces is a comment and adds nothing.
    """
    words = [word for word in re.split(r"[^a-zA-Z0-9:]+", name) if word]
    main, _, per = (part.strip() for part in re.sub(r"\{[^}]*\}", "", unit).partition("/"))
    if main != "1" and (word := _UNITS.get(main, main)) and word not in words:
        words.append(word)
    if per:
        words += ["per", _PER.get(per, per)]
    for wanted, end in ((kind == "counter", "total"), (kind == "gauge" and unit == "1", "ratio")):
        if wanted:
            words = [*(word for word in words if word != end), end]
    return "_".join(words)


def series_name(metric: str, part: str = "") -> str:
    """Return the name of the series of a metric.

    Args:
        metric: OpenTelemetry name.
        part: of a histogram ``bucket``, ``sum`` or ``count``.

    Raises:
        ValueError: There is no such metric, or its kind has no such part.
    """
    if metric not in METRICS:
        raise ValueError(f"{metric} is no metric of nemo_lens.api.semconv, and none of the Collector's")
    kind, unit = METRICS[metric]
    if part not in PARTS[kind]:
        raise ValueError(f"{metric} is a {kind}: its parts are {PARTS[kind]}, not {part!r}")
    return "_".join(filter(None, (metric_name(metric, kind, unit), part)))


def label(attribute: str) -> str:
    """Return the label that an attribute becomes.

    Raises:
        ValueError: There is no such attribute.
    """
    if attribute == LE:
        return LE
    if attribute not in _ATTRIBUTES:
        raise ValueError(f"{attribute} is no attribute of nemo_lens.api.semconv, and none of the Collector's")
    return re.sub(r"[^a-zA-Z0-9_]", "_", attribute)
