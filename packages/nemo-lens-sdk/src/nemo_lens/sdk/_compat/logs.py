"""What moved between the supported OpenTelemetry versions on the side of logs, under its newest name."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from opentelemetry import _logs as logs_api
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk import _logs as logs_sdk
from opentelemetry.sdk.resources import Resource

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
    "emit_log",
    "feeds",
    "is_logging_handler",
    "log_attributes",
    "log_to_json",
    "log_with_resource",
]


def log_to_json(item: Any) -> str:
    """Return one exported log record as the SDK's own JSON.

    Args:
        item: What a log exporter is given: ``LogData`` in 1.38, whose record knows how, later ``ReadableLogRecord``.
    """
    record = item if hasattr(item, "to_json") else item.log_record
    return str(record.to_json(indent=None))


def log_attributes(attributes: dict[str, Any]) -> Any:
    """Return attributes as the SDK keeps them on a log record: 1.38 asks them how many were dropped."""
    return BoundedAttributes(attributes=attributes)


def emit_log(logger: Any, fields: dict[str, Any]) -> None:
    """Emit a log record.

    In 1.38 an SDK logger's ``emit`` enters ``warnings.catch_warnings``: every warning of the application that had been
    shown once is shown again after each record, and filters set meanwhile in other threads are lost. What it does
    inside is done here without.

    Args:
        logger: An OpenTelemetry logger.
        fields: The keyword arguments of ``Logger.emit``.
    """
    if not _WARNS_WHILE_EMITTING or type(logger) is not logs_sdk.Logger:
        logger.emit(**fields)
        return
    limits = _log_limits()
    attributes = BoundedAttributes(
        maxlen=limits.max_attributes,
        attributes=fields["attributes"] or None,
        immutable=False,
        max_value_len=limits.max_attribute_length,
        extended_attributes=True,
    )
    sdk: Any = logs_sdk
    record = sdk.LogRecord.__new__(sdk.LogRecord)
    logs_api.LogRecord.__init__(record, **{**fields, "attributes": attributes})
    record.resource = logger.resource
    data = sdk.LogData.__new__(sdk.LogData)
    data.log_record, data.instrumentation_scope = record, logger._instrumentation_scope
    logger._multi_log_record_processor.on_emit(data)


# LogData is 1.38's. Its constructor and that of its log record warn of their own deprecation.
_WARNS_WHILE_EMITTING = hasattr(logs_sdk, "LogData")


@lru_cache(maxsize=1)
def _log_limits() -> Any:
    return logs_sdk.LogLimits()


@lru_cache(maxsize=256)
def is_logging_handler(kind: Any) -> bool:
    """Return whether a class is OpenTelemetry's ``LoggingHandler``: the SDK's, or that of the package it moved to."""
    return any(
        base.__name__ == "LoggingHandler" and base.__module__.startswith("opentelemetry.") for base in kind.__mro__
    )


def feeds(handler: Any, provider: Any) -> bool:
    """Return whether an OpenTelemetry ``LoggingHandler`` writes to this logger provider."""
    target = getattr(handler, "_logger_provider", None)
    # Made before there was a provider, it holds the API's placeholder, which passes everything on to the global one.
    if target is None or type(target).__name__ == "ProxyLoggerProvider":
        target = logs_api.get_logger_provider()
    return target is provider


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
