"""The first use of everything that a job calls while it runs, in a thread, and what that imports."""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import suppress

import common
from common import say

from nemo_lens.api import (
    SpanRegistry,
    bind_context,
    broadcast_trace_context,
    create_linked_span,
    emit_span,
    extract_context,
    inject_context,
    managed_span,
    mark,
    safe_set_span_attributes,
    set_span_group_spec,
    span_attributes,
    span_cm,
    trace_fn,
)
from nemo_lens.api.instruments import MetricSpec, record_metrics, register_metric_group


def _spans() -> None:
    with managed_span("work", "attributes", odd=object(), text="x" * 10_000, many=[1, "a"]) as span:
        safe_set_span_attributes(span, {"api_key": "secret"})
    with suppress(ValueError), managed_span("work", "failing"):
        raise ValueError("no")
    with managed_span("work", "options", span_kind="serever", links=[{}]):
        pass
    with span_cm("outer"), span_attributes({"phase": "warm-up"}):
        mark("point")
    create_linked_span(None, "linked").end()
    emit_span(None, "inverted", 2, 1)
    emit_span(None, "no time", "x", 1)

    @trace_fn("work")
    def steps() -> object:
        yield 1

    assert list(steps()) == [1]


def _metrics(meter: object) -> None:
    register_metric_group("own", [MetricSpec("count", "own.count", "counter")])
    record_metrics(meter, "own", {"count": 1, "cuont": 2})
    record_metrics(meter, "own", {"count": "text"})
    record_metrics(meter, "onw", {"count": 1})


def _others() -> None:
    bind_context(extract_context(inject_context({})))
    broadcast_trace_context()
    log = logging.getLogger("application")
    log.warning("hello %s", "you")
    with suppress(ValueError):
        SpanRegistry.register("process", ["work"], presets={"default": ["wrok"]})
    set_span_group_spec("wrok")
    set_span_group_spec("all")


def use() -> None:
    """Use everything once, and flush."""
    handle = common.set_up(logs_enabled=True)
    before = set(sys.modules)

    def first() -> None:
        _spans()
        _metrics(handle.meter)
        _others()
        say(flushed=handle.force_flush(20_000))

    thread = threading.Thread(target=first)
    thread.start()
    thread.join()
    say(imported=sorted(set(sys.modules) - before))


if __name__ == "__main__":
    common.main(globals())
