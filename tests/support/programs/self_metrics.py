"""A process that exports, loses or drops, and says what its metrics about the telemetry itself were.

usage: self_metrics.py SCENARIO
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nemo_lens.api import NemoLensConfig, setup_telemetry


class Blocked(SpanExporter):
    """Takes a batch and does not come back before it is let go."""

    def __init__(self) -> None:
        self.taken, self.released = threading.Event(), threading.Event()

    def export(self, spans: Any) -> SpanExportResult:
        """Wait."""
        self.taken.set()
        self.released.wait(30)
        return SpanExportResult.SUCCESS


class Breaking(Blocked):
    """Takes a batch, waits and confirms it; raises from then on."""

    def export(self, spans: Any) -> SpanExportResult:
        """Wait, or raise."""
        if self.released.is_set():
            raise ConnectionResetError("by peer")
        return super().export(spans)


class Failing(SpanExporter):
    """Raises at the first batch, fails at the second, and confirms the third."""

    def __init__(self) -> None:
        self._batches = 0

    def export(self, spans: Any) -> SpanExportResult:
        """Do what is next."""
        self._batches += 1
        if self._batches == 1:
            raise ConnectionResetError("by peer")
        return SpanExportResult.FAILURE if self._batches == 2 else SpanExportResult.SUCCESS


def set_up(**options: Any) -> Any:
    """Set telemetry up; where to, the environment or the options say."""
    settings = {name: options.pop(name) for name in ("logs_enabled", "exporter", "file_path") if name in options}
    config = NemoLensConfig(
        enabled=True, service_name="self", run_id="self", span_groups="", **{"exporter": "otlp", **settings}
    )
    return setup_telemetry(config, resource_attributes={"nv.dl.rank": 0}, **options)


def spans(handle: Any, number: int) -> None:
    """End so many spans."""
    for _ in range(number):
        handle.tracer.start_span("work").end()


def read(reader: InMemoryMetricReader) -> list[Any]:
    """Return name, error.type and value of each point about the telemetry."""
    data = reader.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
    return [
        [metric.name.removeprefix("otel.sdk."), point.attributes.get("error.type", ""), point.value]
        for scope in scopes
        if scope.scope.name == "nemo.lens.sdk"
        for metric in scope.metrics
        for point in metric.data.data_points
    ]


def say(**facts: Any) -> None:
    """Tell the test: one line, in one write, so that processes do not mix theirs."""
    os.write(1, f"{json.dumps(facts)}\n".encode())


def healthy() -> None:
    """Three signals, two collections after the last export, a shutdown."""
    handle = set_up(logs_enabled=True)
    handle.meter.create_counter("own").add(1)
    spans(handle, 3)
    handle.logger_provider.get_logger("self").emit(body="hello")
    say(flushed=[handle.force_flush(10_000), handle.force_flush(10_000)])
    spans(handle, 2)
    handle.shutdown()


def spans_alone() -> None:
    """Spans and metrics; the collection at the end alone."""
    handle = set_up()
    spans(handle, 3)
    handle.shutdown()


def exporting_to_files() -> None:
    """Spans whose file cannot be written."""
    folder, reader = Path(os.environ["FOLDER"]), InMemoryMetricReader()
    handle = set_up(exporter="file", file_path=str(folder / "{signal}.jsonl"), metric_reader=reader)
    folder.rmdir()
    folder.touch()
    spans(handle, 3)
    handle.force_flush(10_000)
    say(read=read(reader))
    handle.shutdown()


def full_queue() -> None:
    """More spans than the queue takes while the exporter has a batch of four, and what is lost after that."""
    exporter, reader = Blocked(), InMemoryMetricReader()
    handle = set_up(span_exporter=exporter, metric_reader=reader)
    spans(handle, 4)
    exporter.taken.wait(10)
    spans(handle, 9)
    say(read=read(reader), lost=[handle.lost_spans(), handle.lost_spans()])
    say(read=read(reader), lost=[handle.lost_spans()])
    exporter.released.set()
    handle.force_flush(10_000)
    say(read=read(reader), lost=[handle.lost_spans()])
    handle.shutdown()


def failing() -> None:
    """Three batches, each of one span more than the one before, to an exporter that mends slowly."""
    reader = InMemoryMetricReader()
    handle = set_up(span_exporter=Failing(), metric_reader=reader)
    for number in (1, 2, 3):
        spans(handle, number)
        handle.force_flush(10_000)
    say(read=read(reader))
    handle.shutdown()


def lossy() -> None:
    """Four spans exported, five dropped, four whose export fails; metrics where the environment says."""
    exporter = Breaking()
    handle = set_up(span_exporter=exporter)
    spans(handle, 4)
    exporter.taken.wait(10)
    handle.meter_provider.force_flush()  # a rate wants two exports
    spans(handle, 9)
    exporter.released.set()
    handle.shutdown()


def forked() -> None:
    """A parent that has exported, a child that has not, and one that has."""
    reader = InMemoryMetricReader()
    handle = set_up(span_exporter=InMemorySpanExporter(), metric_reader=reader)
    spans(handle, 5)
    handle.force_flush(10_000)
    for number in (0, 1):
        child = os.fork()
        if child == 0:
            spans(handle, number)
            handle.force_flush(10_000)
            say(child=number, read=read(reader))
            os._exit(0)
        os.waitpid(child, 0)
    say(read=read(reader))
    handle.shutdown()


def two_runs() -> None:
    """A run, the time between, and another run of the same process with the same reader."""
    reader = InMemoryMetricReader()
    for number in (5, 2):
        handle = set_up(span_exporter=InMemorySpanExporter(), metric_reader=reader)
        say(read=read(reader))
        spans(handle, number)
        handle.force_flush(10_000)
        say(read=read(reader))
        handle.shutdown()
        say(read=read(reader))


def idle() -> None:
    """A run in which nothing happens."""
    handle = set_up(logs_enabled=True)
    say(flushed=[handle.force_flush(10_000)])
    handle.shutdown()


def on_a_host() -> None:
    """An application with a meter provider of its own."""
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider

    host = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([host], shutdown_on_exit=False))
    reader = InMemoryMetricReader()
    handle = set_up(span_exporter=InMemorySpanExporter(), metric_reader=reader)
    spans(handle, 3)
    handle.force_flush(10_000)
    say(read=read(reader), host=read(host))
    handle.shutdown()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
