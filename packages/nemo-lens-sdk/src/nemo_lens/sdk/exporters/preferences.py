"""Temporality and histogram aggregation of exported metrics, from the standard variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import (
    Counter,
    Histogram,
    ObservableCounter,
    ObservableGauge,
    ObservableUpDownCounter,
    UpDownCounter,
)
from opentelemetry.sdk.metrics.export import AggregationTemporality
from opentelemetry.sdk.metrics.view import (
    Aggregation,
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
)

from nemo_lens.api._diagnostics import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    MetricPreferences = tuple[dict[type, AggregationTemporality], dict[type, Aggregation]]

TEMPORALITY_VARIABLE = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
AGGREGATION_VARIABLE = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"

_INSTRUMENTS = (Counter, UpDownCounter, Histogram, ObservableCounter, ObservableUpDownCounter, ObservableGauge)

# What each preference reports as deltas; the rest is cumulative.
_DELTAS: dict[str, tuple[type, ...]] = {
    "cumulative": (),
    "delta": (Counter, Histogram, ObservableCounter),
    "lowmemory": (Counter, Histogram),
}

_HISTOGRAMS: dict[str, type[Aggregation]] = {
    "explicit_bucket_histogram": ExplicitBucketHistogramAggregation,
    "base2_exponential_bucket_histogram": ExponentialBucketHistogramAggregation,
}


def metric_preferences(environ: Mapping[str, str] | None = None) -> MetricPreferences:
    """Return the temporality by instrument and the aggregation of histograms that the environment asks for.

    Args:
        environ: The variables; ``os.environ`` when None. Case and blanks of a value are ignored, a blank one is unset.

    Returns:
        What the SDK's metric readers and exporters take as ``preferred_temporality`` and ``preferred_aggregation``.

    Raises:
        ValueError: A variable holds what the specification does not know.

    Follows https://opentelemetry.io/docs/specs/otel/metrics/sdk_exporters/otlp/.
    """
    variables = os.environ if environ is None else environ
    deltas = _DELTAS[_choice(variables, TEMPORALITY_VARIABLE, tuple(_DELTAS))]
    histogram = _HISTOGRAMS[_choice(variables, AGGREGATION_VARIABLE, tuple(_HISTOGRAMS))]
    temporality: dict[type, AggregationTemporality] = {
        each: AggregationTemporality.DELTA if each in deltas else AggregationTemporality.CUMULATIVE
        for each in _INSTRUMENTS
    }
    return temporality, {Histogram: histogram()}


def _choice(variables: Mapping[str, str], name: str, accepted: tuple[str, ...]) -> str:
    value = variables.get(name, "").strip().lower() or accepted[0]
    if value not in accepted:
        raise ValueError(f"{name}={variables[name]!r}: expected {', '.join(accepted)}{nearest(value, accepted)}")
    return value
