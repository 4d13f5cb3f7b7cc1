"""A training job in miniature: sends traces, metrics and logs through the configured exporter, prints what it sent.

Runs as a process of its own, in an environment that says where to send.
"""

from __future__ import annotations

import json
import os
import sys

from every_kind import record_every_kind
from log_lines import log_inside_a_span, log_outside
from opentelemetry import trace
from opentelemetry._logs import SeverityNumber

from nemo_lens.api import (
    NemoLensConfig,
    SpanRegistry,
    emit_span,
    inject_context,
    managed_span,
    setup_telemetry,
    trace_fn,
)

# A span of another process, to link to and to continue.
REMOTE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
STARTED_NS = 1_700_000_000_123_456_789


@trace_fn("step", "train_step", attributes=lambda batch: {"batch.size": len(batch)}, span_kind="consumer")
def train_step(batch: list[int]) -> None:
    """Run one step whose second microbatch fails."""
    try:
        with managed_span("microbatch", "forward", index=1, ratio=0.5, flags=[True, False], label="größe"):
            raise RuntimeError("loss is not finite")
    except RuntimeError:
        pass


def main() -> None:
    """Send everything, shut down, print the ids and the process's own view of its resource."""
    SpanRegistry.register("receivers", {"job", "step", "microbatch"})
    config = NemoLensConfig(
        enabled=True,
        service_name="receiver-test",
        span_groups="all",
        exporter="otlp",
        logs_enabled=True,
        run_id="run-7",
    )
    handle = setup_telemetry(config, resource_attributes={"nv.dl.rank": 3, "team": "größe"})
    sent: dict[str, object] = {"exporting": handle.is_exporting, "pid": os.getpid()}
    with managed_span("job", "job", links=[REMOTE], span_kind="server", attributes={"gpus": 8}) as job:
        context = job.get_span_context()
        sent["trace_id"], sent["job_id"] = f"{context.trace_id:032x}", f"{context.span_id:016x}"
        job.add_event("loaded", {"shards": 4})
        train_step([1, 2, 3])
        carrier: dict[str, str] = {}
        inject_context(carrier)
        sent["carrier"] = carrier
        handle.logger_provider.get_logger("receivers.log", "1.2").emit(
            body="checkpoint saved",
            severity_number=SeverityNumber.WARN,
            severity_text="WARN",
            attributes={"path": "/ckpt/3"},
            timestamp=STARTED_NS,
        )
        log_inside_a_span()
        record_every_kind(handle.meter)
    log_outside()
    with managed_span("job", "continued", context=REMOTE):
        pass
    emit_span(handle.tracer, "measured", "1700000000.123456789", "1700000002.5", attributes={"source": "launcher"})
    own = trace.get_tracer("application", "9.9", attributes={"scope.attribute": "kept"})
    own.start_span("application span").end()
    handle.meter.create_counter("steps", "{step}", "Steps done").add(5, {"phase": "train"})
    handle.meter.create_up_down_counter("queue", "1").add(-2)
    handle.meter.create_gauge("loss").set(0.25)
    duration = handle.meter.create_histogram("step.duration", "s", explicit_bucket_boundaries_advisory=[1.0, 2.0])
    for seconds in (0.5, 1.5, 4.0):
        duration.record(seconds)
    handle.shutdown(timeout_ms=10_000)
    sent["resource"] = dict(handle.resource_attributes)
    json.dump(sent, sys.stdout)


if __name__ == "__main__":
    main()
