"""From a record of the standard library's ``logging`` to the arguments of an OpenTelemetry ``Logger.emit``."""

from __future__ import annotations

import logging
import sys
import time
from functools import lru_cache
from typing import Any

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context

from nemo_lens.api._outcome import end_of, exception_attributes, type_of
from nemo_lens.api.attributes import clean_attributes, clean_text
from nemo_lens.sdk.sendable import sound_name

# What every record has before the application's record factory adds to it, what formatters add, what Python 3.12 added,
# and what opentelemetry-instrumentation-logging writes there for text formats: the record that is exported has its own
# ids and resource.
_NOT_EXTRA = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    *("message", "asctime", "taskName"),
    *("otelSpanID", "otelTraceID", "otelTraceSampled", "otelServiceName"),
}

# Attribute name by field of the record, of the semantic conventions for code.
_CODE = (("code.file.path", "pathname"), ("code.function.name", "funcName"), ("code.line.number", "lineno"))

# The lowest severity of each range of the log data model, by the lowest level that is in it.
_RANGES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
    (logging.DEBUG, SeverityNumber.DEBUG),
)
_STEPS_IN_A_RANGE = 3
# In nanoseconds since 1970, which OTLP has 64 bits for.
_END_OF_TIME = 2**64
_TEXTS = {"WARNING": "WARN", "CRITICAL": "FATAL"}


def log_fields(record: logging.LogRecord, context: Context) -> dict[str, Any]:
    """Return the keyword arguments of ``Logger.emit`` for a record.

    Follows the OpenTelemetry log data model and the semantic conventions for code and for exceptions.

    Args:
        record: The record, which is only read.
        context: The context whose span the record belongs to.
    """
    return {
        "timestamp": _timestamp(record.created),
        "observed_timestamp": time.time_ns(),
        "context": context,
        "severity_number": severity_number(record.levelno),
        "severity_text": _severity_text(record),
        "body": _body(record),
        "attributes": _attributes(record),
    }


def _timestamp(created: float) -> int | None:
    # From elsewhere a record may have any time, and one that OTLP has no room for would cost its whole batch.
    try:
        nanoseconds = int(created * 1e9)
    except (TypeError, ValueError, OverflowError):
        return None
    return nanoseconds if 0 <= nanoseconds < _END_OF_TIME else None


@lru_cache(maxsize=128)
def severity_number(level: int) -> SeverityNumber:
    """Return the severity of a level.

    The named levels are the lowest of their range, and the levels between them follow it: 25 is INFO4, 51 FATAL2.
    Levels from 1 to 9, which the standard library has no name for, are TRACE, 0 and less unspecified.
    """
    for lowest, severity in _RANGES:
        if level >= lowest:
            return SeverityNumber(severity.value + min(level - lowest, _STEPS_IN_A_RANGE))
    return SeverityNumber.TRACE if level > 0 else SeverityNumber.UNSPECIFIED


def _severity_text(record: logging.LogRecord) -> str:
    # Not levelname where the level has a name: formatters are known to paint that, and run before.
    name = sound_name(logging.getLevelName(record.levelno))
    if name.startswith("Level "):
        name = sound_name(record.levelname)
    return _TEXTS.get(name, name)


def _body(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit, or a __str__ that fails: the user's handlers tell
        message = record.msg
    return clean_text(message)


def _attributes(record: logging.LogRecord) -> dict[str, Any]:
    # A copy, made in one step: a handler's thread may be putting fields of its own there.
    fields = vars(record).copy()
    # The application's own first, since the SDK's limit on their number drops the first ones. They also win, where
    # one says better where a record comes from, as explicit attributes do everywhere.
    attributes: dict[Any, Any] = {key: value for key, value in fields.items() if key not in _NOT_EXTRA}
    for key, name in _CODE:
        if fields.get(name):
            attributes.setdefault(key, fields[name])
    if record.exc_info or record.exc_text or record.stack_info:
        for key, value in _traces(record).items():
            attributes.setdefault(key, value)
    return clean_attributes(attributes)


def _traces(record: logging.LogRecord) -> dict[str, str]:
    found: dict[str, str] = {}
    given: Any = record.exc_info
    if given is True:
        given = sys.exc_info()
    kind, error = (given[0], given[1]) if isinstance(given, tuple) and len(given) == 3 else (None, given)
    if isinstance(error, BaseException):
        found = exception_attributes(error)
    elif isinstance(kind, type):
        found = {"exception.type": type_of(kind)}
    elif not record.exc_info and isinstance(record.exc_text, str):
        # A record from another process has its exception as text, and a formatter leaves some of none at all.
        found = {"exception.stacktrace": end_of(record.exc_text)}
    if isinstance(record.stack_info, str):
        found["code.stacktrace"] = end_of(record.stack_info)
    return found
