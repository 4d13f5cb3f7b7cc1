"""Waiting on a queue is bounded on every Python."""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue

import pytest

from nemo_lens.sdk.waiting import take


@pytest.mark.parametrize("timeout_s", [-1.0, 0.0, 1e-6])
def test_an_expired_wait_on_a_new_queue_ends(timeout_s: float) -> None:
    """A wait whose time is up ends at once, also on a queue nobody has used, where Python 3.10 can wait for ever."""
    for _ in range(5):
        queue: SimpleQueue[int] = SimpleQueue()
        rescue = threading.Timer(5, queue.put, (1,))
        rescue.start()
        _cold = bytearray(32 << 20)  # what makes Python 3.10 slow enough between its two looks at the clock
        with pytest.raises(Empty):
            take(queue, timeout_s)
        assert rescue.is_alive()
        rescue.cancel()


def test_what_comes_in_time_is_taken() -> None:
    """An item put while waiting is returned, with a limit and without."""
    for timeout_s in (30.0, None):
        queue: SimpleQueue[int] = SimpleQueue()
        threading.Timer(0.05, queue.put, (7,)).start()
        started = time.monotonic()
        assert take(queue, timeout_s) == 7
        assert time.monotonic() - started < 20
