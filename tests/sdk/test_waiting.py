"""Waiting on a queue is bounded on every Python."""

from __future__ import annotations

import math
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from nemo_lens.api._diagnostics import forget_reported
from nemo_lens.sdk.waiting import budget_ms, take


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


DAY_MS = 24 * 60 * 60 * 1000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, 700),
        (0, 0),
        (1500, 1500),
        (0.5, 0.5),
        (True, 1),
        (-3, 0),
        (-math.inf, 0),
        (math.inf, DAY_MS),
        (10**16, DAY_MS),
        (10**400, DAY_MS),
        (-(10**400), 0),
    ],
)
def test_a_timeout_is_between_nothing_and_a_day(given: Any, expected: float, caplog: pytest.LogCaptureFixture) -> None:
    """Any number is a timeout that can be waited for, and None the default; nothing is said of either."""
    assert budget_ms(given, 700) == expected
    assert not caplog.messages


@pytest.mark.parametrize("given", ["1000", b"1", math.nan, [1], object()])
def test_no_number_is_the_default(given: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What is no number means the default, with one WARNING that names it."""
    forget_reported()
    assert [budget_ms(given, 700) for _ in range(2)] == [700, 700]
    assert caplog.messages == [f"timeout_ms={given!r} is no number of milliseconds, so it is the default, 700"]
