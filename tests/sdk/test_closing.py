"""Flush and shutdown through the handle: their timeouts, what they wait for, and what they say was lost."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from nemo_lens.api import NemoLensConfig, setup_telemetry
from nemo_lens.api._diagnostics import forget_reported


class Spans(SpanExporter):
    """Calls ``export`` for each batch, which may return an answer; keeps the names of the spans."""

    def __init__(self, export: Callable[[], Any] = lambda: None) -> None:
        self._export = export
        self.names: list[str] = []

    def export(self, spans: Any) -> SpanExportResult:
        answer: SpanExportResult = self._export() or SpanExportResult.SUCCESS
        self.names += [span.name for span in spans]
        return answer

    def shutdown(self) -> None:
        pass


class Points(MetricExporter):
    """Answers every collection alike."""

    def __init__(self, answer: MetricExportResult) -> None:
        super().__init__()
        self._answer = answer

    def export(self, metrics_data: Any, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        return self._answer

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        pass


@pytest.fixture
def open_handle() -> Iterator[Callable[..., Any]]:
    """Set telemetry up with these exporters; what is left open is shut down."""
    handles = []

    def opened(**exporters: Any) -> Any:
        config = NemoLensConfig(enabled=True, metrics_enabled="metric_reader" in exporters)
        handles.append(setup_telemetry(config, **exporters))
        return handles[-1]

    forget_reported()
    yield opened
    for handle in handles:
        handle.shutdown(0)


@pytest.mark.parametrize("timeout_ms", [math.inf, 10**16, 10**400, math.nan, "1000", [1], True, -1, -math.inf, None])
def test_any_timeout_closes(open_handle: Callable[..., Any], timeout_ms: Any) -> None:
    """A timeout that is no number, no duration or longer than any wait raises nothing, and the handle is closed."""
    handle = open_handle(span_exporter=Spans())
    handle.force_flush(timeout_ms)
    handle.shutdown(timeout_ms)
    assert handle.is_shutdown


def test_endless_time_is_time(open_handle: Callable[..., Any]) -> None:
    """``inf`` waits for what the exporter takes, in a flush and in a shutdown."""
    exporter = Spans(lambda: time.sleep(0.2))
    handle = open_handle(span_exporter=exporter)
    handle.tracer.start_span("one").end()
    assert handle.force_flush(math.inf)
    handle.tracer.start_span("two").end()
    handle.shutdown(math.inf)
    assert exporter.names == ["one", "two"]


def test_a_flush_answers_for_the_batch_under_way(open_handle: Callable[..., Any]) -> None:
    """A flush returns False when the batch fails that the exporter had when it was asked; the next one is its own."""
    exporting, going_on = threading.Event(), threading.Event()

    def export() -> SpanExportResult:
        exporting.set()
        assert going_on.wait(20)
        return SpanExportResult.FAILURE

    handle = open_handle(span_exporter=Spans(export))
    handle.tracer.start_span("lost").end()
    handle.force_flush(0)
    assert exporting.wait(20)
    threading.Timer(0.2, going_on.set).start()
    assert handle.force_flush(20_000) is False
    assert handle.force_flush(20_000) is True


def test_lost_metrics_are_counted(open_handle: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """A last collection that the exporter does not confirm is said in one WARNING, with its number of points."""
    handle = open_handle(metric_reader=Points(MetricExportResult.FAILURE))
    counter = handle.meter.create_counter("tokens")
    for rank in range(3):
        counter.add(1, {"rank": rank})
    handle.shutdown()
    assert [line for line in caplog.messages if "dropped" in line] == [
        "3 data points were dropped: the exporter did not confirm them"
    ]


def test_delivered_metrics_are_not_spoken_of(open_handle: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said where the last metrics arrived, or there were none."""
    handle = open_handle(metric_reader=Points(MetricExportResult.SUCCESS))
    handle.meter.create_counter("tokens").add(1)
    handle.shutdown()
    open_handle(metric_reader=Points(MetricExportResult.FAILURE)).shutdown()
    assert "dropped" not in caplog.text


def test_a_collection_that_hangs_is_said(open_handle: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """Where an observable's callback holds the last collection up, a WARNING says that its metrics are lost."""
    handle = open_handle(metric_reader=Points(MetricExportResult.SUCCESS))
    ended = threading.Event()

    def slow(options: Any) -> list[Observation]:
        ended.wait(20)
        return []

    handle.meter.create_observable_gauge("slow", [slow])
    handle.shutdown(100)
    ended.set()
    assert "the last metrics were dropped: they could not be collected in time" in caplog.messages


def test_an_exporter_whose_errors_all_differ_is_said_once(
    open_handle: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """An exception with a text of its own for each batch does not fill the log: its type is said once."""
    batches = iter(range(100))

    def export() -> None:
        raise RuntimeError(f"request {next(batches)} failed")

    handle = open_handle(span_exporter=Spans(export))
    for _ in range(10):
        handle.tracer.start_span("lost").end()
        handle.force_flush()
    assert [line for line in caplog.messages if "failed" in line] == [
        "traces could not be exported to Spans: request 0 failed"
    ]


def test_no_span_vanishes_beside_a_shutdown(open_handle: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """A span that another thread ends while the shutdown closes spans is delivered as it is, or counted as lost.

    One that starts after that belongs to no run. OpenTelemetry has nothing to warn of.
    """
    entered, released = threading.Event(), threading.Event()
    started = []

    def export() -> None:
        started.append(handle.tracer.start_span("of no run"))
        released.set()
        ending.join(20)

    exporter = Spans(export)
    handle = open_handle(span_exporter=exporter)
    span = handle.tracer.start_span("ending")
    hand_over = span._readable_span

    def hold() -> Any:
        entered.set()
        assert released.wait(20)
        return hand_over()

    span._readable_span = hold
    ending = threading.Thread(target=span.end)
    ending.start()
    assert entered.wait(20)
    handle.tracer.start_span("left open")
    handle.shutdown(20_000)
    started[0].end()
    assert len(exporter.names) + handle.lost_spans() == 2
    assert exporter.names == ["left open", "ending"]
    assert "ended span" not in caplog.text


def test_nothing_of_ours_is_called_when_the_handle_is_gone(open_handle: Callable[..., Any]) -> None:
    """Weak references to the handle have no callback of ours: at the interpreter's end, one would fail and say so."""
    import multiprocessing.util  # noqa: F401 - with it loaded, the handle is registered there

    handle = open_handle(span_exporter=Spans())
    callbacks = [ref.__callback__ for ref in weakref.getweakrefs(handle)]
    ours = [each for each in callbacks if each is not None and "WeakValueDictionary" not in each.__qualname__]
    assert ours == []
