"""The handler behind the logging bridge: sends one record, without a lock, without recursion, without an exception."""

from __future__ import annotations

import contextlib
import logging
import threading
from copy import copy
from typing import Any

from opentelemetry.context import get_current

from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.sdk import _compat, log_destination
from nemo_lens.sdk.log_records import log_fields

# Loggers of what exports: their records would be exported again, without end.
NEVER_EXPORTED = frozenset({"opentelemetry", "grpc", "urllib3", "nemo_lens"})


class LoggingBridge(logging.Handler):
    """Sends the records of a logger and of its children to the logger provider of the present run.

    Level and filters are those of any handler; a filter may drop a record or change it, which the application's other
    handlers do not see. A formatter has no effect.
    """

    # The run whose set-up attached it, and will take it off; None when the application did.
    attached_by: object | None = None

    def createLock(self) -> None:  # noqa: N802 - the standard library's name
        """Have no lock: an exporter that logs while it holds a lock of its own would wait for this one."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Send the record unless a filter drops it, or it comes from sending one; never raise."""
        if _in_this_thread.sending:
            return False
        _in_this_thread.sending = True
        try:
            if record.name.partition(".")[0] in NEVER_EXPORTED:
                return False
            if self.filters:
                filtered = self._filtered(record)
                if filtered is None:
                    return False
                record = filtered
            self.emit(record)
        except Exception as fault:  # noqa: BLE001 - whatever happens here, it must not reach the logging call
            report(fault)
            return False
        finally:
            _in_this_thread.sending = False
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record; drop it when there is no provider, or when it comes from inside an export."""
        context = get_current()
        if _compat.is_suppressed(context):
            return
        destination = log_destination.current()
        if destination is not None:
            _compat.emit_log(destination.logger(record.name), log_fields(record, context))

    def flush(self) -> None:
        """Do nothing: the run flushes. ``dictConfig`` and ``logging.shutdown`` call this."""

    def close(self) -> None:
        """Do nothing: ``dictConfig`` closes all handlers there are, and this one lives on."""

    def _filtered(self, record: logging.LogRecord) -> logging.LogRecord | None:
        try:
            # On a copy: others may still hold the record, a queue handler's thread for one.
            record = copy(record)
            verdict: Any = self.filter(record)
        except Exception as fault:  # noqa: BLE001 - a filter is user code
            # It may be there to redact: what it has not seen does not leave.
            kind = type(fault).__name__
            warn_once(
                ("bridge filter", kind),
                "a filter of the logging bridge failed, the record is dropped: %s. Said once",
                kind,
            )
            return None
        if isinstance(verdict, logging.LogRecord):  # as filters of Python 3.12 and later may
            return verdict
        return record if verdict else None


class _InThisThread(threading.local):
    sending = False


_in_this_thread = _InThisThread()


def report(fault: BaseException) -> None:
    """Say at DEBUG, once a kind, why a record was not exported; never raise."""
    # Even that may fail, near the recursion limit or at the end of the interpreter.
    with contextlib.suppress(Exception):
        kind = type(fault).__name__
        debug_once(("bridge", kind), "a log record was not exported: %s", kind, exc_info=True)
