"""Exporters that fail in every way, and values that cannot be exported as they are."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import common
from common import say

from nemo_lens.api import get_meter, managed_span

SPANS = 20


class Faulty:
    """An exporter of spans or log records whose methods do what the test wants."""

    def __init__(self, export: Callable[[], Any], shutdown: Callable[[], Any] = lambda: None) -> None:
        self._export = export
        self.shutdown = shutdown
        self.calls = 0

    def export(self, batch: Sequence[Any]) -> Any:
        self.calls += 1
        return self._export()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        raise RuntimeError("flush is broken")


def _raise(error: BaseException) -> Any:
    raise error


class _NoText(Exception):
    def __str__(self) -> str:
        raise ValueError("not even that")


# What export does, by name.
EXPORTS: dict[str, Callable[[], Any]] = {
    "raises": lambda: _raise(RuntimeError("the exporter's own")),
    "raises without text": lambda: _raise(_NoText()),
    "exits": lambda: _raise(SystemExit(3)),
    "interrupts": lambda: _raise(KeyboardInterrupt()),
    "returns nothing": lambda: None,
    "returns text": lambda: "SUCCESS",
}


def faulty_exporter(how: str) -> None:
    """Spans and log records into an exporter that fails; the job goes on, all calls keep their limits."""
    exporter = Faulty(EXPORTS[how], shutdown=lambda: _raise(RuntimeError("close is broken")))
    handle = common.set_up(span_exporter=exporter, log_exporter=exporter, metrics_enabled=False)
    for _ in range(2):
        with managed_span("work", "done"):
            common.write_log(handle, "done")
        started = time.monotonic()
        say(confirmed=handle.force_flush(5000), seconds=time.monotonic() - started)
    started = time.monotonic()
    handle.shutdown(5000)
    say(seconds=time.monotonic() - started, calls=exporter.calls)
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("nemo-lens")]
    say(threads=threads)


def no_exporter_at_all() -> None:
    """Objects that are no exporters, and a metric reader that fails."""
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    class BrokenReader(InMemoryMetricReader):
        def force_flush(self, timeout_millis: float = 10_000) -> bool:
            raise RuntimeError("flush is broken")

        def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
            raise RuntimeError("close is broken")

    handle = common.set_up(span_exporter=object(), log_exporter=7, metric_reader=BrokenReader())
    with managed_span("work", "done"):
        common.write_log(handle, "done")
        handle.meter.create_counter("done").add(1)
    started = time.monotonic()
    say(confirmed=handle.force_flush(5000))
    handle.shutdown(5000)
    say(seconds=time.monotonic() - started)


# ---- values


def poison() -> None:
    """One batch of good spans with a few that hold what cannot be sent, set past our cleaning; metrics, logs alike."""
    from opentelemetry.trace import Link, Status, StatusCode

    handle = common.set_up(logs_enabled=True)
    tracer = handle.tracer
    for number in range(SPANS):
        with managed_span("work", "good", number=number):
            pass
    with managed_span("work", "surrogate") as span:
        span.set_attribute("text", "a\ud800b")
        span.set_attribute("key\ud800", "kept")
        span.set_attribute("texts", ["ok", "\udfff"])
        span.add_event("event\ud800", {"text": "\ud800"})
        span.add_link(span.get_span_context(), {"text": "\ud800"})
        span.set_status(Status(StatusCode.ERROR, "why\ud800"))
    with managed_span("work", "integer") as span:
        span.set_attribute("number", 2**70)
        span.set_attribute("numbers", [1, -(2**70)])
    with managed_span("work", "large") as span:
        span.set_attribute("text", "x" * 5_000_000)
        span.add_event("large", {"text": "y" * 5_000_000})
    for number in range(6):
        with managed_span("work", f"wide {number}") as span:
            for key in range(120):
                span.set_attribute(f"text.{key}", "z" * 100_000)
    tracer.start_span(12).end()  # type: ignore[arg-type]
    span = tracer.start_span("renamed")
    span.update_name(None)  # type: ignore[arg-type]
    span.end()
    tracer.start_span("name\ud800", links=[Link(span.get_span_context(), {"text": "\ud800"})]).end()

    handle.tracer_provider.get_tracer("scope\ud800", "1\ud800", None, {"text": "\ud800"}).start_span("scoped").end()

    counter = handle.meter.create_counter("done")
    counter.add(1)
    counter.add(2, {"text": "a\ud800b", "number": 2**70, "large": "x" * 5_000_000})
    handle.meter.create_counter("huge").add(2**70)
    handle.meter.create_histogram("spread").record(2**70, {"text": "\ud800"})

    get_meter("scope\ud800").create_counter("scoped").add(1)

    logger = handle.logger_provider.get_logger("process.log")
    logging.addLevelName(45, "level\ud800")
    logging.getLogger("scope\ud800").log(45, "bridged")
    logger.emit(body="good")
    handle.logger_provider.get_logger("raw\ud800").emit(body="scoped", severity_text="level\ud800")
    logger.emit(body="a\ud800b", attributes={"number": 2**70})
    logger.emit(body="x" * 5_000_000, attributes={"text": "\ud800"})
    logger.emit(body={"text": "\ud800", "number": 2**70, "large": ["y" * 5_000_000]})
    say(confirmed=handle.force_flush(20_000))
    handle.shutdown(20_000)


if __name__ == "__main__":
    common.main(globals())
