"""Calls that may hang, side by side, for no longer than said."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

_Key = TypeVar("_Key")
_Result = TypeVar("_Result")


def in_time(calls: Mapping[_Key, Callable[[], _Result]], timeout_s: float) -> dict[_Key, _Result]:
    """Run the calls in a thread each and return the results of those that came back in time.

    What hangs (a name server that is silent, a receiver that sends a byte a second) is left behind in a daemon thread.

    Args:
        calls: What to run; none of it raises.
        timeout_s: Seconds to wait for all of them.
    """
    results: dict[_Key, _Result] = {}

    def run(key: _Key, call: Callable[[], _Result]) -> None:
        results[key] = call()

    deadline = time.monotonic() + timeout_s
    threads = [threading.Thread(target=run, args=item, daemon=True) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(results)
