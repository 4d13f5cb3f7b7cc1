"""SIGTERM: wake a thread that waits, wait for it within a limit, then do what SIGTERM did before."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from nemo_lens.api._diagnostics import warn
from nemo_lens.sdk.waiting import take


class SigtermFlush:
    """A SIGTERM handler with its parked thread.

    Args:
        close: closes telemetry within the milliseconds it is given; called in the parked thread.
        timeout_ms: how long the signal waits for it.
    """

    def __init__(self, close: Callable[[int], None], timeout_ms: int) -> None:
        self._close = close
        self._timeout_ms = timeout_ms
        self._previous: Any = None
        self._installed = False
        # Whether a thread waits at the first queue to answer in the second.
        self._parked = False
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()

    def install(self) -> None:
        """Take SIGTERM over; a WARNING and nothing else outside the main thread, where Python allows no handler."""
        if self._installed:
            return
        if threading.current_thread() is not threading.main_thread():
            warn("install_sigterm_handler works in the main thread only; SIGTERM keeps the action it has")
            return
        self._park()
        self._previous = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._on_signal)
        self._installed = True

    def uninstall(self) -> None:
        """Give SIGTERM back, unless somebody else has taken it since."""
        if self._installed and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, self._previous if self._previous is not None else signal.SIG_DFL)
            self._installed = False
        if self._parked:
            self._parked = False
            self._wake.put(False)

    def after_fork_in_child(self) -> None:
        """Give SIGTERM back in a child, which may install a handler of its own.

        ``Pool.terminate`` waits for the workers it sends SIGTERM to. One that enters a C call in the moment the signal
        arrives never runs a handler written in Python, and the pool would wait for ever.
        """
        self._parked = False
        self.uninstall()

    def _park(self) -> None:
        self._wake = SimpleQueue()
        self._done = SimpleQueue()
        self._parked = True
        threading.Thread(target=self._wait, name="nemo-lens-sigterm", daemon=True).start()

    def _wait(self) -> None:
        # An answer for each signal: a second one may come while the first waits, or after it was chained.
        while self._wake.get():
            self._close(self._timeout_ms)
            self._done.put(None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._parked:
            self._wake.put(True)
            try:
                take(self._done, self._timeout_ms / 1000)
            except Empty:
                pass  # the eviction does not wait for a collector
        previous = self._previous
        if callable(previous):
            previous(number, frame)
        elif previous != signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
