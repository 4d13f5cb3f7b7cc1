"""``create_linked_span``: what the span is, and what it is under and linked to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from nemo_lens.api import (
    NemoLensConfig,
    create_linked_span,
    extract_context,
    get_pp_trace_carrier,
    get_tracer,
    inject_context,
    set_pp_trace_carrier,
    setup_telemetry,
    span_attributes,
    span_cm,
)

REMOTE = (0xAB, 0xCD)
CARRIER = {"traceparent": "00-000000000000000000000000000000ab-00000000000000cd-01"}
OTHER = {"traceparent": "00-000000000000000000000000000000ef-0000000000000012-01"}


class Telemetry:
    """Telemetry that is on, and what was exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        config = NemoLensConfig(enabled=True, metrics_enabled=False, span_groups="")
        self.handle = setup_telemetry(config, span_exporter=self._exporter, resource_attributes={"nv.dl.rank": 0})

    def spans(self) -> list[Any]:
        assert self.handle.force_flush(10_000)
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    telemetry.handle.shutdown()
    set_pp_trace_carrier(None)


def links(span: Any) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_a_link_and_no_parent(telemetry: Telemetry) -> None:
    """Without a current span it is the root of a trace of its own, linked to the remote span."""
    create_linked_span(None, "a", remote_carrier=CARRIER).end()
    (span,) = telemetry.spans()
    assert links(span) == [REMOTE]
    assert span.parent is None
    assert span.context.trace_id != REMOTE[0]
    assert span.instrumentation_scope.name == "nemo.lens.helpers"


def test_the_parent_is_the_local_one(telemetry: Telemetry) -> None:
    """Under a current span it is a child of that, or of the given context; it is not made current itself."""
    with span_cm("local") as local:
        with create_linked_span(None, "a", extract_context(CARRIER)):
            assert inject_context()["traceparent"].split("-")[2] == format(local.get_span_context().span_id, "016x")
        create_linked_span(None, "b", CARRIER, context=OTHER).end()
        create_linked_span(None, "c", CARRIER, context={}).end()
    spans = {span.name: span for span in telemetry.spans()}
    assert [links(spans[name]) for name in "abc"] == [[REMOTE]] * 3
    assert spans["a"].parent.span_id == local.get_span_context().span_id
    assert (spans["b"].context.trace_id, spans["b"].parent.span_id) == (0xEF, 0x12)
    assert spans["c"].parent is None


def test_the_context_beats_the_carrier(telemetry: Telemetry) -> None:
    """There is one link: to ``remote_context`` when both are given."""
    create_linked_span(None, "a", extract_context(CARRIER), OTHER).end()
    assert links(telemetry.spans()[0]) == [REMOTE]


def test_tracer_kind_and_attributes(telemetry: Telemetry) -> None:
    """The tracer is the given one; attributes are cleaned and redacted, scopes apply, keywords win."""
    with span_attributes({"scope": 1, "x": 0}):
        create_linked_span(
            get_tracer("mine"),
            "a",
            CARRIER,
            attributes={"x.y": 1, "x": 1},
            span_kind="consumer",
            x=2,
            o=object(),
            token="t",
        ).end()
    (span,) = telemetry.spans()
    assert span.instrumentation_scope.name == "mine"
    assert span.kind is SpanKind.CONSUMER
    assert dict(span.attributes) == {"x.y": 1, "x": 2, "scope": 1, "token": "[REDACTED]"}


def test_what_was_kept_of_the_stage_before(telemetry: Telemetry) -> None:
    """The pipeline-parallel carrier is a link; none, and one of a stage without a span, is none."""
    for carrier in (CARRIER, {}, None):
        set_pp_trace_carrier(carrier)
        create_linked_span(None, "a", remote_carrier=get_pp_trace_carrier()).end()
    assert [links(span) for span in telemetry.spans()] == [[REMOTE], [], []]


class BrokenTracer:
    def start_span(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no")


def test_a_broken_tracer_gives_a_span_all_the_same(telemetry: Telemetry) -> None:
    """A tracer that fails does not reach the caller, who gets a span that does nothing."""
    with create_linked_span(BrokenTracer(), "a", CARRIER) as span:
        span.set_attribute("x", 1)
    assert telemetry.spans() == []
