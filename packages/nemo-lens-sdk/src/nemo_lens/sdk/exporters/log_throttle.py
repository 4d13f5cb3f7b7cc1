"""Limits what OpenTelemetry's OTLP exporters log of our exports: a line of each kind every five minutes.

They log every try, about a line a second of each process for as long as a collector is away. What they log for somebody
else, and what others log, passes as it is.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any

from nemo_lens.api._diagnostics import debug_once

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

PAUSE_S = 300.0
# Of one exporter. What comes beyond them shares a kind.
MAX_KINDS = 32

_OFFICIAL = "opentelemetry.exporter.otlp."
_STATUS_CODES = range(100, 600)


class LogThrottle:
    """Lets a line of each kind of one exporter pass at once, and the next of that kind only after a pause.

    Args:
        clock: gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # When a line last passed, and how many were left out since.
        self._kinds: dict[Hashable, tuple[float, int]] = {}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Hold what an exporter logs in this thread, until the end of the block, to the limit."""
        outer = _in_this_thread.throttle
        _in_this_thread.throttle = self
        try:
            yield
        finally:
            _in_this_thread.throttle = outer

    def passes(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be logged; one that passes after others did not says how many."""
        kind = _kind_of(record)
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            kind = None
        now = self._clock()
        passed_at, left_out = self._kinds.get(kind, (-inf, 0))
        if now - passed_at < PAUSE_S:
            self._kinds[kind] = passed_at, left_out + 1
            return False
        self._kinds[kind] = now, 0
        if left_out:
            # No percent sign: what is still to be formatted into the message finds its places as they were.
            record.msg = f"{record.msg} (left out since the last line like this: {left_out})"
        return True


def throttle_log_of(exporter: type) -> None:
    """Hold what a class of exporters logs to the throttle that is applied, if one is. Idempotent.

    Nothing is done to the loggers of exporters that are not OpenTelemetry's own over OTLP.
    """
    # Each logs to the logger that is named after its module, or after that of its base class.
    for module in {each.__module__ for each in exporter.__mro__}:
        if module.startswith(_OFFICIAL):
            logging.getLogger(module).addFilter(_FILTER)


def _kind_of(record: logging.LogRecord) -> Hashable:
    """Return what tells one kind of line from another: where it is logged, and of what status or exception it tells.

    The text does not: it has the next delay in it, and addresses of objects.
    """
    given: list[Any] = list(record.args) if isinstance(record.args, tuple) else []
    if record.exc_info:
        given.append(record.exc_info[1])
    return (record.pathname, record.lineno, record.levelno, *map(_cause_of, given))


def _cause_of(value: object) -> object:
    if isinstance(value, BaseException):
        return type(value)
    return value if isinstance(value, Enum) or (type(value) is int and value in _STATUS_CODES) else None


class _Here(threading.local):
    throttle: LogThrottle | None = None


_in_this_thread = _Here()


class _Throttled(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        throttle = _in_this_thread.throttle
        if throttle is None or record.levelno < logging.WARNING:
            return True
        try:
            return throttle.passes(record)
        except Exception as fault:  # noqa: BLE001 - it would come out of the export
            debug_once("log throttle", "a log record was not counted: %r", fault)
            return True


_FILTER = _Throttled()
