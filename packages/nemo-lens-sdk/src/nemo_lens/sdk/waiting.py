"""Waiting on a ``SimpleQueue`` for no longer than said."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import TypeVar

_T = TypeVar("_T")


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
