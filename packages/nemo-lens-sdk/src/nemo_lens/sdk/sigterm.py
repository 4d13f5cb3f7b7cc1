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
        # Threads that are in a fork for which this blocked SIGTERM.
        self._forking: set[int] = set()

    def install(self) -> None:
        """Take SIGTERM over; a WARNING and nothing else where that cannot be.

        Outside the main thread Python allows no handler, and at a limit of processes there is no thread to park.
        """
        if self._installed:
            return
        if threading.current_thread() is not threading.main_thread():
            warn("install_sigterm_handler works in the main thread only; SIGTERM keeps the action it has")
            return
        try:
            self._park()
        except RuntimeError as fault:
            warn("install_sigterm_handler has no thread to flush in (%s); SIGTERM keeps the action it has", fault)
            return
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

    def before_fork(self) -> None:
        """Hold SIGTERM back in this thread, so that one sent to the child at once meets the action it is given back."""
        if self._installed and signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}):
            self._forking.add(threading.get_ident())

    def after_fork_in_parent(self) -> None:
        """Let SIGTERM through again."""
        if threading.get_ident() in self._forking:
            self._forking.discard(threading.get_ident())
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def after_fork_in_child(self) -> None:
        """Give SIGTERM back in a child, which may install a handler of its own.

        ``Pool.terminate`` waits for the workers it sends SIGTERM to. One that enters a C call in the moment the signal
        arrives never runs a handler written in Python, and the pool would wait for ever.
        """
        self._parked = False
        self.uninstall()
        self.after_fork_in_parent()
        self._forking.clear()  # of threads that are not here

    def _park(self) -> None:
        self._wake = SimpleQueue()
        self._done = SimpleQueue()
        threading.Thread(target=self._wait, name="nemo-lens-sigterm", daemon=True).start()
        self._parked = True

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
