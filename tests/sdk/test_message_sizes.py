"""What is sent fits into messages of 4 MiB, and what fits into none takes nothing with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    MetricsData,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from nemo_lens.api import _diagnostics
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk._compat import succeeded
from nemo_lens.sdk.export_counts import OTHER, REJECTED
from nemo_lens.sdk.exporters import ExporterPlan, plan_exporter
from nemo_lens.sdk.metric_pipes import CollectPipe
from nemo_lens.sdk.outgoing import OutgoingSpans
from nemo_lens.sdk.outgoing_metrics import metric_parts
from nemo_lens.sdk.per_process import PerProcessExporter
from support.otlp_decode import Record, message_to_json, points_of
from support.otlp_receiver import OtlpReceiver

LIMIT = 4 * 2**20
# Of 128 events.
FIVE_MB = {f"text.{number}": "a" * 8000 for number in range(5)}
# Of a collection.
POINTS = 15 * 200 + 1
_TIMEOUT_MS = 30_000


@pytest.fixture(autouse=True)
def _first_time() -> None:
    _diagnostics.forget_reported()


class Spans:
    """Spans as the SDK ends them."""

    def __init__(self, parent: SpanContext | None = None) -> None:
        self._context = None if parent is None else set_span_in_context(NonRecordingSpan(parent), Context())
        self._ended = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._ended))
        self._tracer = provider.get_tracer("sizes")

    def add(self, name: str, text: str = "", links: Sequence[Link] = (), turn: Mapping[str, str] | None = None) -> None:
        """Start and end a span; with 128 events where ``turn`` is given, their attributes."""
        attributes = {"text": text} if text else None
        span = self._tracer.start_span(name, self._context, links=links, attributes=attributes)
        for _ in range(128 if turn is not None else 0):
            span.add_event("turn", turn)
        span.end()

    def parts(self) -> list[list[ReadableSpan]]:
        """Return the spans in the parts in which they are sent."""
        return list(OutgoingSpans(None).parts(self._ended.get_finished_spans()))


def plan(receiver: OtlpReceiver, signal: Any) -> ExporterPlan:
    """Return the plan of an exporter over gRPC to the receiver, which has gRPC's default limit."""
    environ = receiver.environ("grpc")
    return plan_exporter(signal, NemoLensConfig(exporter="otlp"), run_id="run", rank=0, environ=environ)


def collection(label_sets: int = 200) -> MetricsData:
    """Return a collection of ten histograms and five counters with attributes of 1500 characters, and a gauge."""
    reader = InMemoryMetricReader()
    resource = Resource({"service.name": "sizes"})
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    layers = [{"layer": f"model.layers.{number}.mlp", "text": "x" * 1500} for number in range(label_sets)]
    for number in range(10):
        meter = provider.get_meter(f"meter {number % 3}", "1.0")
        histogram = meter.create_histogram(f"time.{number}", "s", "time of a layer")
        for layer in layers:
            histogram.record(0.25, layer)
        if number % 2:
            counter = meter.create_up_down_counter(f"level.{number}") if number == 1 else None
            counter = counter or meter.create_counter(f"calls.{number}", "1", "calls of a layer")
            for layer in layers:
                counter.add(1, layer)
    provider.get_meter("meter 0", "1.0").create_gauge("loss").set(0.5)
    data = reader.get_metrics_data()
    assert data is not None
    return data


def points(data: MetricsData) -> list[Record]:
    """Return the data points of a message."""
    return list(points_of(message_to_json(encode_metrics(data))))


def number_of(data: MetricsData) -> int:
    """Return how many data points a message has."""
    scopes = [of_scope for of_resource in data.resource_metrics for of_scope in of_resource.scope_metrics]
    return sum(len(metric.data.data_points) for of_scope in scopes for metric in of_scope.metrics)


def by_series(found: Sequence[Record]) -> dict[tuple[str, str], Record]:
    """Return data points by metric and layer; each is there once."""
    named = {(point["name"], point["attributes"].get("layer", "")): point for point in found}
    assert len(named) == len(found)
    return named


def collecting(planned: ExporterPlan) -> CollectPipe:
    """Return the pipe that exports collections."""
    return CollectPipe(PerProcessExporter(planned), None, 60.0, 30.0)


# ---- spans


@pytest.mark.parametrize("state", ["", "x" * 200])
def test_spans_with_links_and_events_arrive_over_grpc(otlp_receiver: OtlpReceiver, state: str) -> None:
    """A batch of spans full of links, also with trace states, and of events is sent in parts that fit."""
    spans = Spans()
    trace_state = TraceState([("vendor", state)] if state else [])
    links = [Link(SpanContext(1 + number, 5 + number, True, trace_state=trace_state)) for number in range(128)]
    number_of_spans = 128 if state else 512
    for _ in range(number_of_spans):
        spans.add("step", text="x" * 3900, links=links, turn={})
    exporter = plan(otlp_receiver, "traces").make()
    try:
        assert all(succeeded(exporter.export(part)) for part in spans.parts())
    finally:
        exporter.shutdown()
    assert len(otlp_receiver.spans()) == number_of_spans
    assert len(otlp_receiver.requests("traces")) > 1


def test_many_bare_spans_fit() -> None:
    """What a span takes of itself counts: 15,000 spans without attributes, with a trace state, are sent in parts."""
    state = TraceState([("vendor", "x" * 200)])
    spans = Spans(SpanContext(1, 2, True, TraceFlags(TraceFlags.SAMPLED), state))
    for _ in range(15_000):
        spans.add("s")
    parts = spans.parts()
    assert sum(map(len, parts)) == 15_000
    assert all(encode_spans(part).ByteSize() < LIMIT for part in parts)


def test_a_span_too_large_for_any_message_goes_alone_and_last(caplog: pytest.LogCaptureFixture) -> None:
    """The spans of its batch go before it, in one message, and one WARNING names it."""
    spans = Spans()
    for name in ("rollout", "other rollout"):
        spans.add("before")
        spans.add(name, turn=FIVE_MB)
        spans.add("after")
    assert [[span.name for span in part] for part in spans.parts()] == [
        ["before", "after", "before", "after"],
        ["rollout"],
        ["other rollout"],
    ]
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "a span 'rollout' takes about 4.9 MiB: it is sent alone" in warning


def test_a_span_too_large_for_any_message_takes_no_other_with_it(otlp_receiver: OtlpReceiver) -> None:
    """A receiver that refuses it has the others of its batch."""
    spans = Spans()
    spans.add("rollout", turn=FIVE_MB)
    for _ in range(20):
        spans.add("small")
    exporter = plan(otlp_receiver, "traces").make()
    try:
        first, last = spans.parts()
        assert succeeded(exporter.export(first))
        assert [span.name for span in last] == ["rollout"]
    finally:
        exporter.shutdown()
    assert Counter(span["name"] for span in otlp_receiver.spans()) == {"small": 20}


# ---- metrics


def test_a_small_collection_is_one_message() -> None:
    """A collection of the usual size is not parted."""
    data = collection(label_sets=20)
    (part,) = metric_parts(data, None)
    assert points(part) == points(data)


def test_a_large_collection_arrives_over_grpc_point_for_point(otlp_receiver: OtlpReceiver) -> None:
    """More than 4 MiB of metrics are sent in several messages, which together say what one would have said.

    Each point is there once, with its numbers, resource, scope, name, unit, description, temporality and monotonicity;
    the parts are confirmed, and all points counted.
    """
    data = collection()
    assert encode_metrics(data).ByteSize() > LIMIT
    pipe = collecting(plan(otlp_receiver, "metrics"))
    assert pipe.export(metric_parts(data, None), _TIMEOUT_MS)
    pipe.exporter.close()
    assert len(otlp_receiver.requests("metrics")) > 2
    assert by_series(otlp_receiver.points()) == by_series(points(data))
    assert (pipe.counts.taken, pipe.counts.confirmed, pipe.counts.inflight) == (POINTS, POINTS, 0)


@pytest.mark.parametrize("kind", ["exemplars", "exponential"])
def test_all_that_a_point_has_counts(kind: str) -> None:
    """Exemplars with long attributes and the buckets of exponential histograms are weighed, too."""
    if kind == "exemplars":
        options: dict[str, Any] = {
            "exemplar_filter": AlwaysOnExemplarFilter(),
            "views": [View(instrument_name="*", attribute_keys={"layer"})],
        }
    else:
        aggregation = ExponentialBucketHistogramAggregation(max_size=160)
        options = {"views": [View(instrument_name="*", aggregation=aggregation)]}
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False, **options).get_meter("sizes")
    histogram = meter.create_histogram("time")
    for layer in range(600):
        if kind == "exemplars":
            histogram.record(0.25, {"layer": layer, "text": "x" * 8000})
        else:
            for value in range(1, 160, 3):
                histogram.record(1.05**value, {"layer": layer, "text": "x" * 2000})
                histogram.record(-(1.05**value), {"layer": layer, "text": "x" * 2000})
    data = reader.get_metrics_data()
    assert data is not None
    parts = metric_parts(data, None)
    assert len(parts) > 1
    assert all(encode_metrics(part).ByteSize() < LIMIT for part in parts)
    assert sum(map(number_of, parts)) == 600


def test_a_point_too_large_for_any_message_goes_alone_and_last(caplog: pytest.LogCaptureFixture) -> None:
    """The points of its collection go before it, and one WARNING names the metric."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("sizes")
    counter = meter.create_counter("large")
    counter.add(1, {f"text.{number}": "x" * 8000 for number in range(600)})
    counter.add(2)
    meter.create_counter("small").add(3)
    data = reader.get_metrics_data()
    assert data is not None
    first, last = (points(part) for part in metric_parts(data, None))
    assert [(point["name"], point["value"]) for point in first] == [("large", 2), ("small", 3)]
    assert [(point["name"], point["value"]) for point in last] == [("large", 1)]
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "a data point of metric 'large' takes about" in warning


def test_what_each_message_loses_is_counted(otlp_receiver: OtlpReceiver) -> None:
    """A receiver that rejects a point of each message rejects as many as there were messages, and it is no success."""
    otlp_receiver.reject(1, "too old")
    pipe = collecting(plan(otlp_receiver, "metrics"))
    parts = metric_parts(collection(), None)
    assert not pipe.export(parts, _TIMEOUT_MS)
    pipe.exporter.close()
    assert pipe.counts.failed == {OTHER: 0, REJECTED: len(parts)}
    assert pipe.counts.confirmed == POINTS - len(parts)


class SecondFails(MetricExporter):
    """Confirms all exports but the second."""

    def __init__(self, fault: Exception | None) -> None:
        super().__init__()
        self._fault = fault
        self.given: list[tuple[int, float]] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Confirm, or fail."""
        self.given.append((number_of(metrics_data), timeout_millis))
        if len(self.given) != 2:
            return MetricExportResult.SUCCESS
        if self._fault is not None:
            raise self._fault
        return MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Hold nothing back."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("fault", "reason"), [(None, OTHER), (ConnectionResetError("by peer"), "ConnectionResetError")]
)
def test_a_message_that_fails_takes_no_other_with_it(fault: Exception | None, reason: str) -> None:
    """Each is tried, within the time of one export; the points of the one that failed are counted, by the reason."""
    exporter = SecondFails(fault)
    pipe = collecting(ExporterPlan("second fails", "given", lambda: exporter))
    parts = metric_parts(collection(), None)
    assert len(parts) > 2
    assert not pipe.export(parts, _TIMEOUT_MS)
    numbers, timeouts = zip(*exporter.given, strict=True)
    assert sum(numbers) == pipe.counts.taken == POINTS
    assert pipe.counts.failed[reason] == numbers[1]
    assert pipe.counts.confirmed == POINTS - numbers[1]
    assert list(timeouts) == sorted(timeouts, reverse=True)
    assert timeouts[0] <= _TIMEOUT_MS


def test_a_receiver_in_trouble_is_not_tried_past_the_time_of_an_export() -> None:
    """Once a message failed and the time is over, what is left is counted as lost."""
    exporter = SecondFails(None)
    pipe = collecting(ExporterPlan("second fails", "given", lambda: exporter))
    parts = metric_parts(collection(), None)
    assert not pipe.export(parts, 0.0)
    assert len(exporter.given) == 2
    assert pipe.counts.confirmed == exporter.given[0][0]
    assert pipe.counts.failed[OTHER] == POINTS - exporter.given[0][0]


def test_a_copy_knows_what_was_dropped() -> None:
    """A span that gets another resource, in a later run or a forked child, still says what did not fit on it."""
    ended = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(ended))
    span = provider.get_tracer("sizes").start_span("full", attributes={str(number): number for number in range(130)})
    for number in range(131):
        span.add_event(str(number))
    span.end()
    (original,) = ended.get_finished_spans()
    ((copied,),) = OutgoingSpans(Resource({"process.pid": 2})).parts([original])
    assert copied is not original
    assert (copied.dropped_attributes, copied.dropped_events) == (2, 3)
    assert copied.resource.attributes == {"process.pid": 2}
    assert (copied.attributes, copied.events) == (original.attributes, original.events)
