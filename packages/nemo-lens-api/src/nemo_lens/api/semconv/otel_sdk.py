"""Metrics about the telemetry itself: what waits, what was dropped, what was exported.

As in https://opentelemetry.io/docs/specs/semconv/otel/sdk-metrics/, whose attributes these metrics carry.
"""

from __future__ import annotations

OTEL_SDK_PROCESSOR_SPAN_PROCESSED = "otel.sdk.processor.span.processed"
OTEL_SDK_PROCESSOR_SPAN_QUEUE_SIZE = "otel.sdk.processor.span.queue.size"
OTEL_SDK_PROCESSOR_SPAN_QUEUE_CAPACITY = "otel.sdk.processor.span.queue.capacity"
OTEL_SDK_EXPORTER_SPAN_EXPORTED = "otel.sdk.exporter.span.exported"
OTEL_SDK_EXPORTER_SPAN_INFLIGHT = "otel.sdk.exporter.span.inflight"
OTEL_SDK_PROCESSOR_LOG_PROCESSED = "otel.sdk.processor.log.processed"
OTEL_SDK_PROCESSOR_LOG_QUEUE_SIZE = "otel.sdk.processor.log.queue.size"
OTEL_SDK_PROCESSOR_LOG_QUEUE_CAPACITY = "otel.sdk.processor.log.queue.capacity"
OTEL_SDK_EXPORTER_LOG_EXPORTED = "otel.sdk.exporter.log.exported"
OTEL_SDK_EXPORTER_LOG_INFLIGHT = "otel.sdk.exporter.log.inflight"
OTEL_SDK_EXPORTER_METRIC_DATA_POINT_EXPORTED = "otel.sdk.exporter.metric_data_point.exported"
OTEL_SDK_EXPORTER_METRIC_DATA_POINT_INFLIGHT = "otel.sdk.exporter.metric_data_point.inflight"

# Their attributes.
OTEL_COMPONENT_NAME = "otel.component.name"
OTEL_COMPONENT_TYPE = "otel.component.type"
ERROR_TYPE = "error.type"

# Name to kind and unit (UCUM). They are observed: read when metrics are collected.
OTEL_SDK_METRIC_FIELDS: dict[str, tuple[str, str]] = {
    OTEL_SDK_PROCESSOR_SPAN_PROCESSED: ("counter", "{span}"),
    OTEL_SDK_PROCESSOR_SPAN_QUEUE_SIZE: ("up_down_counter", "{span}"),
    OTEL_SDK_PROCESSOR_SPAN_QUEUE_CAPACITY: ("up_down_counter", "{span}"),
    OTEL_SDK_EXPORTER_SPAN_EXPORTED: ("counter", "{span}"),
    OTEL_SDK_EXPORTER_SPAN_INFLIGHT: ("up_down_counter", "{span}"),
    OTEL_SDK_PROCESSOR_LOG_PROCESSED: ("counter", "{log_record}"),
    OTEL_SDK_PROCESSOR_LOG_QUEUE_SIZE: ("up_down_counter", "{log_record}"),
    OTEL_SDK_PROCESSOR_LOG_QUEUE_CAPACITY: ("up_down_counter", "{log_record}"),
    OTEL_SDK_EXPORTER_LOG_EXPORTED: ("counter", "{log_record}"),
    OTEL_SDK_EXPORTER_LOG_INFLIGHT: ("up_down_counter", "{log_record}"),
    OTEL_SDK_EXPORTER_METRIC_DATA_POINT_EXPORTED: ("counter", "{data_point}"),
    OTEL_SDK_EXPORTER_METRIC_DATA_POINT_INFLIGHT: ("up_down_counter", "{data_point}"),
}
# Every attribute of these metrics and the type it is sent as.
OTEL_SDK_METRIC_ATTRIBUTES: dict[str, type[str]] = {
    OTEL_COMPONENT_NAME: str,
    OTEL_COMPONENT_TYPE: str,
    ERROR_TYPE: str,
}
