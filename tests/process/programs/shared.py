"""One process, several parties: two libraries, a host application with providers of its own, one run after another."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
from common import say

from nemo_lens.api import (
    NemoLensConfig,
    SpanRegistry,
    enabled_span_groups,
    get_telemetry,
    managed_span,
    setup_telemetry,
    span_cm,
)


def two_libraries() -> None:
    """Two libraries set up; the second takes what the first has."""
    first = common.set_up(rank=1)
    refused = ""
    try:
        common.set_up(rank=9, run_id="another")
    except RuntimeError as error:
        refused = str(error)
    second = get_telemetry()
    with managed_span("work", "of first"):
        second.tracer.start_span("of second").end()
    second.meter.create_counter("done").add(1)
    say(refused=refused, shared=second is first, exporting=second.is_exporting)
    first.shutdown()
    say(after=get_telemetry().is_exporting, first_exporting=first.is_exporting)


# ---- a host application's own providers


def host() -> None:
    """A host with ids, sampler, resource, processors, meters and loggers of its own, and Lens twice beside it."""
    from opentelemetry import _logs, metrics, trace
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

    from nemo_lens.sdk._compat import InMemoryLogRecordExporter

    class Counted(IdGenerator):
        last = 0

        def generate_span_id(self) -> int:
            self.last += 1
            return self.last

        generate_trace_id = generate_span_id

    class NoSecrets(Sampler):
        def should_sample(self, parent_context: Any, trace_id: int, name: str, *args: Any, **kw: Any) -> SamplingResult:
            return SamplingResult(Decision.DROP if name == "secret" else Decision.RECORD_AND_SAMPLE)

        def get_description(self) -> str:
            return "no secrets"

    seen = RecordingExporter()
    resource = Resource({"service.name": "host", "host.owned": True})
    provider = TracerProvider(sampler=NoSecrets(), resource=resource, id_generator=Counted())
    provider.add_span_processor(SimpleSpanProcessor(seen))
    reader, logs_seen = InMemoryMetricReader(), InMemoryLogRecordExporter()
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(meters := MeterProvider([reader], resource=resource))
    loggers = LoggerProvider(resource=resource)
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs_seen))
    _logs.set_logger_provider(loggers)

    host_tracer = trace.get_tracer("host")
    for round_number in (1, 2):
        before = host_tracer.start_span(f"host before {round_number}")
        handle = common.set_up(logs_enabled=True)
        with host_tracer.start_as_current_span(f"host open {round_number}") as host_span:
            with managed_span("work", f"lens {round_number}"), managed_span("work", "secret"):
                pass
            common.write_log(handle, str(round_number) * 9000)  # more than Lens sends of it
            handle.meter.create_counter("lens.counter").add(1)
            meters.get_meter("host").create_counter("host.counter").add(1)
            held = span_cm(f"lens open {round_number}")
            held.__enter__()
            handle.shutdown()
            say(host_span_open=host_span.is_recording(), host_exporter_open=not seen.closed)
            held.__exit__(None, None, None)
        before.end()
        host_tracer.start_span(f"host after {round_number}").end()
    collected = reader.get_metrics_data()
    names = [metric.name for part in collected.resource_metrics for sm in part.scope_metrics for metric in sm.metrics]
    say(
        seen=seen.names,
        host_metrics=names,
        host_logs=[item.log_record.body for item in logs_seen.get_finished_logs()],
        providers_kept=(
            trace.get_tracer_provider() is provider
            and metrics.get_meter_provider() is meters
            and _logs.get_logger_provider() is loggers
        ),
        processors=len(provider._active_span_processor._span_processors),
    )


class RecordingExporter:
    """A host's exporter that notes what it was given and whether it was closed."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.closed = False

    def export(self, spans: Sequence[Any]) -> Any:
        from opentelemetry.sdk.trace.export import SpanExportResult

        self.names += [span.name for span in spans]
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.closed = True

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


# ---- one run after another


def again() -> None:
    """A second run after a shutdown, with tracers and instruments of the first."""
    first = common.set_up(rank=1, logs_enabled=True)
    from opentelemetry import trace

    own = trace.get_tracer("application")
    counter = first.meter.create_counter("done")
    own.start_span("first").end()
    counter.add(1)
    common.write_log(first, "first")
    first.shutdown()
    own.start_span("between").end()
    counter.add(10)
    common.write_log(first, "between")
    os.environ["OTEL_TRACES_SAMPLER"] = "always_off"
    second = common.set_up(rank=2, logs_enabled=True, run_id="run-2")
    own.start_span("second").end()
    first.tracer.start_span("second by first's").end()
    with managed_span("work", "second by helper"):
        pass
    counter.add(3)
    common.write_log(first, "second")
    say(same_provider=first.tracer_provider is second.tracer_provider, exporting=second.is_exporting)
    first.shutdown()  # of a run that is over: nothing to the second
    own.start_span("second still").end()
    second.shutdown()


def reinit() -> None:
    """A set-up that replaces the one that is live."""
    first = common.set_up(rank=1)
    with managed_span("work", "first"):
        pass
    second = common.set_up(rank=2, _allow_reinit=True)
    with managed_span("work", "second"):
        pass
    say(first=first.is_exporting, second=second.is_exporting)


# ---- disabled


def _third_party() -> list[str]:
    """The modules loaded that are neither Python's nor ours, by their top-level names."""
    known = {*sys.stdlib_module_names, "nemo_lens", "common", "__main__", "__mp_main__", "sitecustomize"}
    tops = {name.partition(".")[0] for name in sys.modules}
    # Editable installs load finders of their own at start-up.
    return sorted(top for top in tops - known if not top.startswith(("__editable__", "_virtualenv", "_editable")))


def disabled(how: str) -> None:
    """A set-up that is switched off, by configuration or by the standard variable; an enabled one afterwards."""
    before = _third_party()
    SpanRegistry.register("process", ["work"])
    handle = setup_telemetry(NemoLensConfig(enabled=how != "config", span_groups="all"))
    with managed_span("work", "off") as span:
        say(span=span is None)
    with handle, span_cm("off") as span:
        span.set_attribute("key", 1)
    say(
        exporting=handle.is_exporting,
        groups=sorted(enabled_span_groups()),
        modules=sorted(set(_third_party()) - set(before)),
        threads=threading.active_count(),
    )
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    os.environ.pop("OTEL_SDK_DISABLED", None)  # it switches the application's provider off, too
    provider = TracerProvider(shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    say(slot_was_free=trace.get_tracer_provider() is provider)
    say(later=common.set_up().is_exporting)
    with managed_span("work", "on"):
        pass


# ---- settings that cannot work

# Variable, value. OpenTelemetry reads the propagators once in a process.
BAD = (
    ("OTEL_PROPAGATORS", "pigeon"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "soon"),
    ("OTEL_METRIC_EXPORT_TIMEOUT", "0"),
    ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "1e3"),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "100000"),
    ("OTEL_BLRP_EXPORT_TIMEOUT", "x"),
    ("OTEL_TRACES_SAMPLER", "always_maybe"),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many"),
    ("NEMO_LENS_EXPORTER", "carrier-pigeon"),
    ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json"),
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "sometimes"),
)


def half_built() -> None:
    """Each bad setting in turn, then what is left of it, then a good set-up."""
    good = os.environ["NEMO_LENS_EXPORTER"]
    for variable, value in BAD:
        os.environ["NEMO_LENS_EXPORTER"] = "otlp"
        os.environ[variable] = value
        message = ""
        try:
            common.set_up(logs_enabled=True)
        except ValueError as error:
            message = str(error)
        del os.environ[variable]
        say(bad=variable, message=message, threads=threading.active_count(), left=_left())
    os.environ["NEMO_LENS_EXPORTER"] = good
    with common.set_up(logs_enabled=True) as handle:
        with managed_span("work", "after all"):
            pass
        say(exporting=handle.is_exporting)


def read_at_import() -> None:
    """A variable that OpenTelemetry reads as it is imported is wrong, then right."""
    message = ""
    try:
        common.set_up()
    except ValueError as error:
        message = str(error)
    say(message=message, threads=threading.active_count())
    os.environ["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"] = "5"
    with common.set_up() as handle:
        say(exporting=handle.is_exporting)


def _left() -> list[str]:
    """What a failed set-up has left behind."""
    from opentelemetry import _logs, metrics, trace

    globals_ = (trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider())
    left = [
        type(provider).__name__ for provider in globals_ if type(provider).__module__.startswith("opentelemetry.sdk")
    ]
    if get_telemetry().is_exporting:
        left.append("handle")
    return [*left, *enabled_span_groups()]


# ---- survivors


def many_runs(runs: str) -> None:
    """Set up and shut down many times; tell what is still there."""
    references: list[weakref.ref[Any]] = []
    early = 0
    for number in range(int(runs)):
        handle = common.set_up(logs_enabled=True)
        with managed_span("work", f"run {number}"):
            handle.meter.create_counter("done").add(1)
            common.write_log(handle, "done")
        references += [weakref.ref(part) for part in (handle, *handle._pipes())]
        handle.shutdown()
        del handle
        early = early or _open_files()
    gc.collect()
    # gRPC closes its sockets in threads of its own, some time after the channel.
    deadline = time.monotonic() + 5
    while _open_files() > early and time.monotonic() < deadline:
        time.sleep(0.05)
    say(
        alive=sum(reference() is not None for reference in references),
        made=len(references),
        threads=sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread()),
        descriptors=[early, _open_files()],
    )


class Measured:
    """What an application measures: its own object, whose life a metric must not prolong."""

    def size(self) -> int:
        return 7


def many_runs_with_numbers(runs: str) -> None:
    """Set up and shut down many times, with metric groups and logging bridges of each run's own."""
    import logging

    from nemo_lens.api.instruments import (
        MetricSpec,
        create_metric_instruments,
        record_metrics,
        register_metric_group,
        unregister_metric_group,
    )
    from nemo_lens.sdk.logging_bridge import remove_logging_bridge, setup_logging_bridge

    original = logging.Logger.callHandlers
    log = logging.getLogger("application")
    log.setLevel(logging.INFO)
    references: list[weakref.ref[Any]] = []
    handlers, early = len(logging.root.handlers), 0

    def one_run(number: int) -> None:
        handle = common.set_up(logs_enabled=True)
        measured = Measured()
        register_metric_group(
            "run",
            [
                MetricSpec("done", "done", "counter"),
                MetricSpec("spread", "spread", "histogram", buckets=(1, 2)),
                MetricSpec("size", "size", "observable_gauge", callback=measured.size),
            ],
        )
        create_metric_instruments(handle.meter, "run")
        record_metrics(handle.meter, "run", done=1, spread=number)
        bridge = setup_logging_bridge("application.part")
        log.info("run %d", number)
        logging.getLogger("application.part").info("part of run %d", number)
        references.extend(weakref.ref(part) for part in (handle, *handle._pipes(), measured, bridge))
        handle.shutdown()
        unregister_metric_group("run")
        remove_logging_bridge("application.part")
        log.info("after run %d", number)

    for number in range(int(runs)):
        one_run(number)
        if number == int(runs) // 2:
            gc.collect()
            early = sys.getallocatedblocks()
    gc.collect()
    say(
        alive=sum(reference() is not None for reference in references),
        made=len(references),
        threads=sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread()),
        restored=logging.Logger.callHandlers is original,
        handlers=len(logging.root.handlers) - handlers,
        grown=sys.getallocatedblocks() - early,
    )


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    common.main(globals())
