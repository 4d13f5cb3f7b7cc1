"""SIGTERM: wake a thread that waits, wait for it within a limit, then do what SIGTERM did before.

While the main thread is in a C call no handler runs. Then another thread does the same in its stead: it has all flushed
and, where SIGTERM ended the process before, ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from nemo_lens.api._diagnostics import warn
from nemo_lens.sdk.waiting import take
from nemo_lens.sdk.wakeup import SignalWakeup, default_action


class SigtermFlush:
    """A SIGTERM handler with its parked threads.

    Args:
        close: closes telemetry within the milliseconds it is given; called in a parked thread when SIGTERM ends the
            process.
        flush: exports what is waiting within the milliseconds it is given; called there when the process goes on,
            since the application handles SIGTERM or ignores it.
        timeout_ms: how long the signal waits for either, in milliseconds.
    """

    def __init__(self, close: Callable[[float], object], flush: Callable[[float], object], timeout_ms: float) -> None:
        self._close = close
        self._flush = flush
        self._timeout_ms = timeout_ms
        # Less than the wait, so that what was lost is said before the process ends.
        self._budget_ms = timeout_ms - min(max(50.0, timeout_ms / 20), timeout_ms / 2)
        self._previous: Any = None
        self._installed = False
        # Whether a thread waits at the queue for what it is to answer in, None for its end.
        self._parked = False
        self._wake: SimpleQueue[SimpleQueue[None] | None] = SimpleQueue()
        self._wakeup = SignalWakeup(signal.SIGTERM, self._on_arrival)
        self._end: Callable[[], None]
        # Whether the main thread waits in the handler, which another SIGTERM may interrupt.
        self._waiting = False
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
        self._end = default_action(signal.SIGTERM)
        self._wakeup.open()
        signal.signal(signal.SIGTERM, self._on_signal)
        self._installed = True

    def uninstall(self) -> None:
        """Give SIGTERM back, unless somebody else has taken it since; only the main thread can.

        Elsewhere the threads stay with the handler, which still ends the process while the main thread is in a C call.
        """
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._previous if self._previous is not None else signal.SIG_DFL)
        self._installed = False
        self._wakeup.close()
        if self._parked:
            self._parked = False
            self._wake.put(None)

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
        self._wakeup.close_in_child()
        self.uninstall()
        self.after_fork_in_parent()
        self._forking.clear()  # of threads that are not here

    def _park(self) -> None:
        self._wake = SimpleQueue()
        threading.Thread(target=self._wait, name="nemo-lens-sigterm", daemon=True).start()
        self._parked = True

    def _wait(self) -> None:
        # An answer for each signal: a second one may come while the first waits, or after it was chained.
        while (answer := self._wake.get()) is not None:
            act = self._close if self._kills() else self._flush
            act(self._budget_ms)
            answer.put(None)

    def _have_it_done(self) -> None:
        answer: SimpleQueue[None] = SimpleQueue()
        self._wake.put(answer)
        with contextlib.suppress(Empty):  # the eviction does not wait for a collector
            take(answer, self._timeout_ms / 1000)

    def _kills(self) -> bool:
        """Whether SIGTERM did what it does by default, and so does after the flush."""
        previous = self._previous
        earlier = getattr(previous, "__self__", None)
        if isinstance(earlier, SigtermFlush):  # of a run that another thread than the main one has shut down
            return earlier._kills()
        return not callable(previous) and previous != signal.SIG_IGN

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._waiting:
            if self._kills():
                return  # the first one ends the process, after its flush
        elif self._parked:
            self._waiting = True
            try:
                self._have_it_done()
            finally:
                self._waiting = False
        previous = self._previous
        if callable(previous):
            previous(number, frame)
        elif self._kills():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def _on_arrival(self) -> None:
        # In a thread of its own, beside the handler, if that runs. One that came later decides for itself.
        if not self._is_in_charge():
            return
        self._have_it_done()
        if self._kills() and self._is_in_charge():
            self._end()

    def _is_in_charge(self) -> bool:
        return self._installed and signal.getsignal(signal.SIGTERM) == self._on_signal
