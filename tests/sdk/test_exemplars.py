"""Exemplars under threads: what a collection in the middle of a measurement does to either."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest
from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import Aggregation, ExponentialBucketHistogramAggregation

from nemo_lens.sdk._compat import safe_aggregations


@pytest.mark.parametrize("preferred", [{}, {Histogram: ExponentialBucketHistogramAggregation()}])
@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram"])
def test_a_collection_in_the_middle_of_a_measurement(kind: str, preferred: dict[type, Aggregation]) -> None:
    """Neither fails, and the measurement counts, when one thread collects while another chooses its exemplar."""
    reader = InMemoryMetricReader(preferred_aggregation=safe_aggregations(preferred))
    provider = MeterProvider([reader], exemplar_filter=AlwaysOnExemplarFilter(), shutdown_on_exit=False)
    instrument: Any = getattr(provider.get_meter("test"), f"create_{kind}")("measured")
    record = instrument.add if kind == "counter" else instrument.set if kind == "gauge" else instrument.record
    paused, collected = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def pause(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_name != "_find_bucket_index":
            return None
        if event == "line" and frame.f_lineno > frame.f_code.co_firstlineno + 8:
            sys.settrace(None)
            paused.set()
            collected.wait(0.3)  # a collection that waits for the measurement goes on after it
            return None
        return pause

    def measure() -> None:
        sys.settrace(pause)
        try:
            record(3)
        except BaseException as fault:
            failed.append(fault)

    record(2)
    measuring = threading.Thread(target=measure)
    measuring.start()
    paused.wait(5)
    first = reader.get_metrics_data()
    collected.set()
    measuring.join()
    assert first is not None
    assert failed == []
    record(4)
    points = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    assert [getattr(point, "value", None) or point.sum for point in points] == [4 if kind == "gauge" else 9]
    assert points[0].exemplars[-1].value == 4
