"""Exported log records as a test reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False, repr=False)
class RecordedLog:
    """One log record.

    ``severity`` is OpenTelemetry's text, such as ``INFO`` or ``WARN``, and ``severity_number`` its number; ``trace_id``
    and ``span_id`` (hex) are those of the span it was logged in, empty outside of one; ``scope`` is the name of the
    instrumentation scope, which is the logger's; ``time_ns`` is in epoch nanoseconds.
    """

    body: Any
    severity: str
    severity_number: int
    attributes: Mapping[str, Any]
    trace_id: str
    span_id: str
    scope: str
    time_ns: int

    def __str__(self) -> str:
        attributes = "".join(f" {key}={value!r}" for key, value in sorted(self.attributes.items()))
        return f"{self.severity} {self.scope}: {self.body!r}{attributes}"

    def __repr__(self) -> str:
        return f"<RecordedLog {self}>"


def recorded_logs(exported: Iterable[Any]) -> Iterator[RecordedLog]:
    """Yield the records that a log exporter was given."""
    for item in exported:
        record = item.log_record
        number = record.severity_number
        yield RecordedLog(
            body=record.body,
            severity=record.severity_text or "",
            severity_number=0 if number is None else number.value,
            attributes=dict(record.attributes or {}),
            trace_id=f"{record.trace_id:032x}" if record.trace_id else "",
            span_id=f"{record.span_id:016x}" if record.span_id else "",
            scope=item.instrumentation_scope.name if item.instrumentation_scope else "",
            time_ns=record.timestamp or record.observed_timestamp or 0,
        )
