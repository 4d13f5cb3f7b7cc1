"""Numbers that reached an instrument past ``record_metrics``: one that cannot be sent must not spoil every export."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from nemo_lens.sdk.outgoing_metrics import metric_parts


def _sent(kind: str, value: Any) -> list[Any]:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("raw")
    create, put = {"gauge": ("create_gauge", "set"), "histogram": ("create_histogram", "record")}[kind]
    try:
        getattr(getattr(meter, create)("number"), put)(value)
    except (TypeError, ValueError, OverflowError):
        pytest.skip("this version refuses it itself")
    data = reader.get_metrics_data()
    assert data is not None
    (part,) = metric_parts(data, None)
    (of_resource,) = part.resource_metrics
    (metric,) = of_resource.scope_metrics[0].metrics
    return list(metric.data.data_points)


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (True, 1),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (Decimal("0.5"), 0.5),
        (10**30, 1e30),
        (10**400, float("inf")),
    ],
)
def test_a_gauges_number_becomes_a_plain_one(value: Any, sent: float) -> None:
    """What no exporter or not each encodes is an int or float of OTLP when it is sent."""
    (point,) = _sent("gauge", value)
    assert (type(point.value), point.value) == (type(sent), sent)


def test_a_histograms_numbers_become_plain_ones() -> None:
    """The sum and the bounds of what was recorded as numpy scalars are floats."""
    (point,) = _sent("histogram", np.float32(0.5))
    assert [type(number) for number in (point.sum, point.min, point.max)] == [float] * 3


def test_a_sum_beyond_the_largest_float_is_infinite() -> None:
    """The sum of integers that no float holds does not spoil its collection."""
    reader = InMemoryMetricReader()
    histogram = MeterProvider([reader], shutdown_on_exit=False).get_meter("raw").create_histogram("number")
    for _ in range(3):
        histogram.record(2**1023)
    data = reader.get_metrics_data()
    assert data is not None
    (part,) = metric_parts(data, None)
    (point,) = part.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert point.sum == float("inf")
    encode_metrics(part)


@pytest.mark.parametrize("value", ["high", [1], object()])
def test_what_is_no_number_is_left_out(value: Any) -> None:
    """A point that cannot be sent is left out, and the collection with the others is sent."""
    assert _sent("gauge", value) == []
