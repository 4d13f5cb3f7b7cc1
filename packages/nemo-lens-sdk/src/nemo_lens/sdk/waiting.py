"""Waiting for no longer than said."""

from __future__ import annotations

import math
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from nemo_lens.api._diagnostics import warn_once

_T = TypeVar("_T")

# What a wait can be told on every Python and platform.
_LONGEST_MS = 86_400_000.0


def take(queue: SimpleQueue[_T], timeout_s: float | None) -> _T:
    """Take the next item, waiting for at most ``timeout_s`` seconds, None for ever.

    Python 3.10 can wait for ever whatever the timeout: its ``get`` takes the free lock of a new queue first and then
    subtracts the time that took, which makes a timeout near zero negative, and a negative one means no timeout. Looking
    first leaves the lock taken.

    Raises:
        queue.Empty: when nothing came in time.
    """
    try:
        return queue.get_nowait()
    except Empty:
        if timeout_s is not None and timeout_s <= 0:
            raise
    return queue.get(timeout=timeout_s)


def budget_ms(timeout_ms: Any, default: float) -> float:
    """Return a caller's timeout as milliseconds between 0 and one day.

    Args:
        timeout_ms: what the caller gave; None means the default, and so does what is no number, with a WARNING.
        default: milliseconds.
    """
    given = default if timeout_ms is None else _number(timeout_ms)
    if math.isnan(given):
        given = default
        kind = ("timeout", type(timeout_ms).__name__)
        warn_once(kind, "timeout_ms=%r is no number of milliseconds, so it is the default, %d", timeout_ms, default)
    return min(max(given, 0.0), _LONGEST_MS)


def _number(given: Any) -> float:
    if isinstance(given, (str, bytes, bytearray)):
        return math.nan
    try:
        return float(given)
    except OverflowError:  # an int beyond what a float holds
        return math.inf if given > 0 else 0.0
    except Exception:  # noqa: BLE001 - whatever it is, it is no number
        return math.nan
