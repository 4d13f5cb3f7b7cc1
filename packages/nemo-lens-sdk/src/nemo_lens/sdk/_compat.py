"""What moved between the supported OpenTelemetry versions, under its newest name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link

from nemo_lens.api._diagnostics import warn_once

# Renamed in 1.39. The old names still import later, as deprecated classes, so the new ones are tried first.
try:
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, LogRecordExporter, LogRecordExportResult
except ImportError:  # 1.38
    from opentelemetry.sdk._logs.export import InMemoryLogExporter as InMemoryLogRecordExporter
    from opentelemetry.sdk._logs.export import LogExporter as LogRecordExporter
    from opentelemetry.sdk._logs.export import LogExportResult as LogRecordExportResult  # type: ignore[assignment]

__all__ = [
    "InMemoryLogRecordExporter",
    "LogRecordExportResult",
    "LogRecordExporter",
    "events_and_links",
    "log_attributes",
    "log_to_json",
    "log_with_resource",
    "restart_metrics",
    "succeeded",
    "suppress_instrumentation",
]


def log_to_json(item: Any) -> str:
    """Return one exported log record as the SDK's own JSON.

    Args:
        item: What a log exporter is given: ``LogData`` in 1.38, whose record knows how, later ``ReadableLogRecord``.
    """
    record = item if hasattr(item, "to_json") else item.log_record
    return str(record.to_json(indent=None))


def succeeded(result: Any) -> bool:
    """Return whether an exporter of any signal confirmed what it was given."""
    return getattr(result, "name", "") == "SUCCESS"


def suppress_instrumentation() -> None:
    """Keep instrumented HTTP and gRPC clients from tracing the exports of the calling thread."""
    # The key has no public name; opentelemetry-instrumentation, which has one, is no dependency.
    from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, set_value

    attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))


def events_and_links(span: ReadableSpan) -> tuple[Sequence[Event], Sequence[Link]]:
    """Return a finished span's events and links.

    The public properties copy both lists under a lock, also when they are empty, as they mostly are: that is a
    hundredth of the time of a whole span.
    """
    try:
        if not span._events and not span._links:
            return (), ()
    except AttributeError:
        pass  # an SDK that keeps them elsewhere
    return span.events, span.links


def log_attributes(attributes: dict[str, Any]) -> Any:
    """Return attributes as the SDK keeps them on a log record: 1.38 asks them how many were dropped."""
    return BoundedAttributes(attributes=attributes)


def log_with_resource(item: Any, resource: Resource | None) -> Any:
    """Return the exported log record with this resource, unchanged for None or when it has it already.

    Args:
        item: What a log exporter is given: ``LogData`` in 1.38, whose record holds the resource, later
            ``ReadableLogRecord``.
        resource: The resource to put on it.
    """
    if resource is None:
        return item
    if not hasattr(item, "resource"):
        item.log_record.resource = resource
        return item
    return item if item.resource is resource else replace(item, resource=resource)


def restart_metrics(provider: Any, reader: Any) -> None:
    """Give a forked child's meter provider empty aggregations and locks nobody holds.

    There is no public way: the child would report its parent's sums again, and wait for locks of threads it does not
    have. When the SDK's internals are not as they are in the supported versions, metrics of the child stay off.

    Args:
        provider: The SDK's meter provider.
        reader: Its reader.
    """
    try:
        consumer = provider._measurement_consumer
        consumer._lock = Lock()
        if hasattr(reader, "_export_lock"):
            reader._export_lock = Lock()
        consumer._reader_storages = {
            known: type(storage)(*_storage_arguments(consumer, known))
            for known, storage in consumer._reader_storages.items()
        }
    except AttributeError as fault:
        reader._set_collect_callback(lambda *args, **kwargs: None)
        warn_once("forked metrics", "metrics of this forked process are not exported: %r", fault)


def _storage_arguments(consumer: Any, reader: Any) -> tuple[Any, ...]:
    limits = getattr(reader, "_instrument_class_cardinality_limit", None)  # since 1.4x
    common = (consumer._sdk_config, reader._instrument_class_temporality, reader._instrument_class_aggregation)
    return common if limits is None else (*common, limits)
