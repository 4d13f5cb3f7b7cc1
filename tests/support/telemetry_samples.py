"""Spans, metrics and log records from the real SDK providers, with every kind of content an exporter meets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from nemo_lens.sdk._compat import InMemoryLogRecordExporter

ATTRIBUTES: dict[str, Any] = {
    "bool": True,
    "false": False,
    "int": 42,
    "zero": 0,
    "negative": -7,
    "int64.max": 2**63 - 1,
    "int64.min": -(2**63),
    "float": 0.1,
    "float.whole": 3.0,
    "float.tiny": 5e-324,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "str": 'quote " backslash \\ newline \n tab \t nul \0',
    "unicode": "Grüße 你好 🚀 \u2028",
    "empty": "",
    "bools": (True, False),
    "ints": (1, -2, 2**53 + 1),
    "floats": (1.5, math.nan, -math.inf),
    "strs": ("a", "", "é"),
    "nothing": (),
}

RESOURCE = Resource({"service.name": "trainer", "nv.dl.rank": 3, "host.gpu.count": 8}, schema_url="https://example/1")
REMOTE = SpanContext(
    trace_id=0x0AF7651916CD43DD8448EB211C80319C,
    span_id=0x00F067AA0BA902B7,
    is_remote=True,
    trace_flags=TraceFlags(1),
    trace_state=TraceState([("vendor", "a"), ("other", "b")]),
)


@dataclass
class Samples:
    """One batch for each signal, as an exporter is given it."""

    traces: tuple[ReadableSpan, ...]
    metrics: Any
    logs: tuple[Any, ...]

    def of(self, signal: str) -> Any:
        """Return the batch of a signal."""
        return getattr(self, signal)


def samples(nested: bool = False) -> Samples:
    """Return new samples; ``nested`` adds attributes that OpenTelemetry accepts since 1.45."""
    attributes = dict(ATTRIBUTES)
    if nested:
        attributes["bytes"] = b"\x00\xff"
        attributes["map"] = {"a": 1, "b": [True, {"c": b"x"}], "none": None}
        attributes["mixed"] = (1, "two", 3.0, None)
    return Samples(spans(attributes), metrics(), logs(attributes))


def spans(attributes: dict[str, Any] = ATTRIBUTES) -> tuple[ReadableSpan, ...]:
    """Return spans of all kinds and states, a remote parent, links, events and dropped content among them."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False, span_limits=SpanLimits(max_events=3))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("lens.test", "1.2", schema_url="https://example/scope", attributes={"scope.kind": "x"})
    bare = provider.get_tracer("bare")
    remote = trace.set_span_in_context(NonRecordingSpan(REMOTE), Context())
    with tracer.start_as_current_span("root", remote, SpanKind.SERVER, attributes) as root:
        for kind in SpanKind:
            bare.start_span(f"kind {kind.name}", kind=kind).end()
        with tracer.start_as_current_span(
            "failed", links=[Link(REMOTE, {"why": "resumed"}), Link(root.get_span_context())]
        ) as span:
            for index in range(5):
                span.add_event(f"event {index}", attributes, timestamp=1_700_000_000_000_000_000 + index)
            span.set_status(Status(StatusCode.ERROR, "ValueError: nö"))
        with bare.start_as_current_span("fine", context=Context()) as span:
            span.set_status(StatusCode.OK)
            span.record_exception(ValueError("recorded"))
    return memory.get_finished_spans()


def metrics() -> Any:
    """Return one collection of all kinds of instruments, with exemplars."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(
        [reader],
        resource=RESOURCE,
        exemplar_filter=AlwaysOnExemplarFilter(),
        shutdown_on_exit=False,
        views=[View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())],
    )
    meter = provider.get_meter("lens.test", "1.2", schema_url="https://example/scope")
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("exemplars")
    with tracer.start_as_current_span("measured"):
        counter = meter.create_counter("tokens", "{token}", "Tokens seen")
        counter.add(5, {"kind": "a", "rank": 1})
        counter.add(2**40, {"kind": "b"})
        meter.create_up_down_counter("balance", "1").add(-1.5)
        meter.create_gauge("loss").set(0.25, {"ratio": 0.5, "final": True})
        meter.create_gauge("zero").set(0)
        histogram = meter.create_histogram("duration", "s", explicit_bucket_boundaries_advisory=[0.1, 1.0, 10.0])
        for value in (0.0, 0.05, 0.5, 99.0):
            histogram.record(value, {"path": "/é"})
        exponential = meter.create_histogram("exponential")
        for value in (0, 0.001, 1, 1000):
            exponential.record(value)

    def observe(options: CallbackOptions) -> list[Observation]:
        return [Observation(7, {"device": 0}), Observation(8, {"device": 1})]

    meter.create_observable_counter("observed", [observe])
    meter.create_observable_gauge("memory", [observe], "By")
    provider.get_meter("other").create_counter("one").add(1)
    collected = reader.get_metrics_data()
    provider.shutdown()
    return collected


def logs(attributes: dict[str, Any] = ATTRIBUTES) -> tuple[Any, ...]:
    """Return log records with every type of body, inside a span and outside."""
    memory = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(memory))
    logger = provider.get_logger("lens.test", "1.2", schema_url="https://example/scope")
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("logged")
    with tracer.start_as_current_span("logged"):
        logger.emit(
            timestamp=1_700_000_000_000_000_001,
            observed_timestamp=1_700_000_000_000_000_002,
            severity_number=SeverityNumber.WARN,
            severity_text="WARNING",
            body="inside",
            attributes=attributes,
            event_name="lens.event",
        )
    bodies: list[Any] = ["outside é", 3, 2.5, False, b"\xff", ["a", 1], {"map": {"deep": [1, 2]}, "n": math.nan}, None]
    for body in bodies:
        provider.get_logger("bare").emit(body=body, timestamp=1, observed_timestamp=2, context=Context())
    records: tuple[Any, ...] = memory.get_finished_logs()
    return records
