"""What moved between the supported OpenTelemetry versions, or has no public way in some of them: all of it is here."""

from __future__ import annotations

from nemo_lens.sdk._compat.logs import (
    InMemoryLogRecordExporter,
    LogRecordExporter,
    LogRecordExportResult,
    emit_log,
    feeds,
    is_logging_handler,
    log_attributes,
    log_to_json,
    log_with_resource,
)
from nemo_lens.sdk._compat.metrics import (
    collects_at_shutdown,
    forget_observables,
    keep_resource,
    known_observables,
    restart_metrics,
    safe_aggregations,
    set_metric_resource,
    without_own_metrics,
)
from nemo_lens.sdk._compat.otlp import hear_answers
from nemo_lens.sdk._compat.spans import (
    add_attributes,
    bounded,
    events_and_links,
    is_suppressed,
    succeeded,
    suppress_instrumentation,
)

__all__ = [
    "InMemoryLogRecordExporter",
    "LogRecordExportResult",
    "LogRecordExporter",
    "add_attributes",
    "bounded",
    "collects_at_shutdown",
    "emit_log",
    "events_and_links",
    "feeds",
    "forget_observables",
    "hear_answers",
    "is_logging_handler",
    "is_suppressed",
    "keep_resource",
    "known_observables",
    "log_attributes",
    "log_to_json",
    "log_with_resource",
    "restart_metrics",
    "safe_aggregations",
    "set_metric_resource",
    "succeeded",
    "suppress_instrumentation",
    "without_own_metrics",
]
