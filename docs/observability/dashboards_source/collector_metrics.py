"""What the OpenTelemetry Collector says of itself, as far as the dashboards ask for it: its names are not semconv's.

As in https://opentelemetry.io/docs/collector/internal-telemetry/, sent as OTLP by the configurations in ``collector/``.
"""

from __future__ import annotations

# Signals, as the Collector's names have them.
ITEMS = {"spans": "spans", "log records": "log_records", "data points": "metric_points"}

ACCEPTED = {signal: f"otelcol_receiver_accepted_{items}" for signal, items in ITEMS.items()}
REFUSED = {signal: f"otelcol_receiver_refused_{items}" for signal, items in ITEMS.items()}
QUEUE_FULL = {signal: f"otelcol_exporter_enqueue_failed_{items}" for signal, items in ITEMS.items()}
GIVEN_UP = {signal: f"otelcol_exporter_send_failed_{items}" for signal, items in ITEMS.items()}
QUEUE_SIZE, QUEUE_CAPACITY = "otelcol_exporter_queue_size", "otelcol_exporter_queue_capacity"
EXPORTER = "exporter"

# Name to kind and unit; attributes of theirs.
COLLECTOR_METRICS: dict[str, tuple[str, str]] = {
    **{
        metric: ("counter", f"{{{ITEMS[signal]}}}")
        for metrics in (ACCEPTED, REFUSED, QUEUE_FULL, GIVEN_UP)
        for signal, metric in metrics.items()
    },
    QUEUE_SIZE: ("gauge", "{batches}"),
    QUEUE_CAPACITY: ("gauge", "{batches}"),
}
COLLECTOR_ATTRIBUTES = frozenset({EXPORTER})
