"""Forked children for which the operating system starts no thread any more, as at a limit of processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import common
from common import say
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nemo_lens.api import managed_span

# Bytes of stack for a thread: more than there are.
TOO_MUCH = 2**46


class Slow(InMemorySpanExporter):
    """Takes its time for a batch."""

    def export(self, spans: Any) -> Any:
        """Keep the spans."""
        time.sleep(0.005)
        return super().export(spans)


class Flushing(InMemorySpanExporter):
    """Ends a span in the middle of an export, and flushes."""

    handle: Any = None

    def export(self, spans: Any) -> Any:
        """Keep the spans."""
        if spans[0].name == "done":
            self.handle.tracer.start_span("inside").end()
            say(flushed_inside=self.handle.force_flush(20_000))
        return super().export(spans)


def fork_without_threads() -> None:
    """Go on as a child; the parent waits for it and ends as it did."""
    threading.stack_size(TOO_MUCH)
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def flushed_in_an_export(threads: str) -> None:
    """Flush inside an export, in a process with the pipe's thread and in one without, and then outside."""
    exporter = Flushing()
    handle = exporter.handle = common.set_up(span_exporter=exporter, metrics_enabled=False)
    if not int(threads):
        fork_without_threads()
    say(threads=threading.active_count() - 1)
    handle.tracer.start_span("done").end()
    flushed = [handle.force_flush(20_000), handle.force_flush(20_000)]
    say(flushed=flushed, exported=[span.name for span in exporter.get_finished_spans()])


def flushed_by_many() -> None:
    """Let four threads flush at a time what one of them could."""
    exporter = Slow()
    handle = common.set_up(span_exporter=exporter, metrics_enabled=False)
    fork_without_threads()
    threading.stack_size(0)
    begin = threading.Event()
    threads = [threading.Thread(target=lambda: (begin.wait(), handle.force_flush(20_000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    threading.stack_size(TOO_MUCH)
    for _ in range(53):
        handle.tracer.start_span("done").end()
    begin.set()
    for thread in threads:
        thread.join()
    say(exported=len(exporter.get_finished_spans()), lost=handle.lost_spans())


def interrupted() -> None:
    """End spans in a signal's handler while the interrupted code ends some."""
    exporter = InMemorySpanExporter()
    handle = common.set_up(span_exporter=exporter, metrics_enabled=False)
    fork_without_threads()
    signals: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        signals.append(number)
        handle.tracer.start_span("in the handler").end()

    signal.signal(signal.SIGALRM, on_signal)
    end, spans = time.monotonic() + 2, 0
    while time.monotonic() < end:
        # One at a time: a handler is not to be interrupted by the next.
        signal.setitimer(signal.ITIMER_REAL, 0.0002)
        for _ in range(20):
            handle.tracer.start_span("interrupted").end()
            spans += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    handle.force_flush(20_000)
    say(made=spans + len(signals), exported=len(exporter.get_finished_spans()), signals=len(signals))


def set_up() -> None:
    """Set up, record and close where there has been no thread from the start."""
    import nemo_lens.sdk.backend  # noqa: F401 - later OpenTelemetry starts threads while it is imported

    threading.stack_size(TOO_MUCH)
    exporter = InMemorySpanExporter()
    handle = common.set_up(span_exporter=exporter, metrics_enabled=False)
    handle.install_sigterm_handler()
    with managed_span("work", "done"):
        pass
    handle.shutdown()
    (span,) = exporter.get_finished_spans()
    say(
        names=[span.name],
        resource=dict(span.resource.attributes),
        lost=handle.lost_spans(),
        sigterm=int(signal.getsignal(signal.SIGTERM)),
    )


if __name__ == "__main__":
    common.main(globals())
