"""A process that gets no thread of its own exports when it is flushed and at its end, and never waits for itself."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from process_runs import run, warnings_of

pytestmark = pytest.mark.timeout(60)

UNLIMITED = {"OTEL_BSP_MAX_QUEUE_SIZE": "1000000", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "5"}


@pytest.mark.parametrize("threads", [0, 1])
def test_a_flush_in_an_export_does_not_wait_for_it(threads: int) -> None:
    """An exporter that flushes is told at once that it cannot; what it queued is exported by the next flush."""
    ended = run("threadless", "flushed_in_an_export", threads, timeout_s=15)
    assert ended.code == 0, ended.stderr
    assert ended.fact("threads") == threads
    assert (ended.fact("flushed_inside"), ended.fact("flushed")) == (False, [True, True])
    assert ended.fact("exported") == ["done", "inside"]


def test_threads_that_flush_together_lose_nothing() -> None:
    """Each span is exported once, however many threads flush at a time."""
    ended = run("threadless", "flushed_by_many", environ=UNLIMITED)
    assert ended.code == 0, ended.stderr
    assert (ended.fact("exported"), ended.fact("lost")) == (53, 0)
    assert "could not be exported" not in ended.stderr


def test_a_signals_handler_that_ends_spans_does_not_wait_for_what_it_interrupted() -> None:
    """The attempt to start a thread, which each span makes again, keeps no other one waiting."""
    ended = run("threadless", "interrupted", environ=UNLIMITED, timeout_s=20)
    assert ended.code == 0, ended.stderr
    assert ended.fact("signals") > 0
    assert ended.fact("exported") == ended.fact("made")


def test_set_up_without_a_thread() -> None:
    """A process at its limit of threads is set up all the same, exports at its end and keeps its SIGTERM."""
    ended = run("threadless", "set_up", environ=UNLIMITED)
    assert ended.code == 0, ended.stderr
    assert (ended.fact("names"), ended.fact("lost"), ended.fact("sigterm")) == (["done"], 0, 0)
    resource = ended.fact("resource")
    assert (resource["nv.dl.rank"], resource["telemetry.sdk.name"]) == (2, "opentelemetry")
    assert resource["telemetry.sdk.version"] == version("opentelemetry-sdk")
    assert warnings_of(ended.stderr, "resource attributes of OpenTelemetry's detectors are left out: RuntimeError")
    assert warnings_of(ended.stderr, "install_sigterm_handler has no thread to flush in")
