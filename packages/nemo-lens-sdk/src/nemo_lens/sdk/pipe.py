"""The export pipe of one signal: one daemon thread, its requests, one deadline, the fork.

The SDK's batch processors ignore their timeouts, cannot count what they drop, and break at fork and at exit
(opentelemetry-python 2284, 4638, 1567, 4752), so exporting does not go through them.

The thread sleeps on a ``SimpleQueue``, whose ``put`` is safe in a signal handler; a request to flush or close is an
answer queue put there. Nothing that waits on the thread waits past its own deadline.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from nemo_lens.api._diagnostics import debug_once, is_news, warn
from nemo_lens.sdk import _compat, fork
from nemo_lens.sdk.per_process import PerProcessExporter
from nemo_lens.sdk.waiting import take

# An answer: whether all that was asked for has been confirmed. Deadlines are on the monotonic clock.
_Answer = SimpleQueue[bool]

# How long a forked child waits at its end for a collector that did not answer its parent, and how long an export of the
# parent's is in flight before it counts as not answered.
SHORT_MS = 250.0


class _Request:
    __slots__ = ("answer", "closing", "failures")

    def __init__(self, closing: bool, failures: int) -> None:
        self.answer: _Answer = SimpleQueue()
        self.closing = closing
        # How often the pipe had failed when it was asked.
        self.failures = failures


class ExportPipe:
    """Machinery shared by the pipes: the thread, its requests, the fork."""

    def __init__(self, signal: str, exporter: PerProcessExporter, interval_s: float | None) -> None:
        self.signal = signal
        self.exporter = exporter
        self._interval_s = interval_s
        self._closed = False
        # Set when nobody waits for this pipe any more: give up what cannot be sent at once.
        self._abandoned = False
        # Until when what comes after the end is still sent; None for not at all.
        self._lingers_until: float | None = None
        # Whether the last export came through, in this process or before the fork; None while there was none.
        self.works: bool | None = None
        # Whether this is a child of a process whose exports did not come through, and none has since.
        self.hopeless = False
        self._reset()
        fork.register(self)

    def _reset(self) -> None:
        self._wake: SimpleQueue[_Request | None] = SimpleQueue()
        self._exporting = threading.Lock()
        # Since when an export has been in flight, on the monotonic clock.
        self._in_flight_since: float | None = None
        # How often not all of what was waiting was confirmed.
        self._failures = 0
        self._starting = threading.Lock()
        # The thread that forks and has this pipe wait for it; several may fork at a time.
        self._held_by: int | None = None
        self._thread: threading.Thread | None = None
        # The last request, which the thread may be at.
        self._served: _Request | None = None
        # The threads in the middle of an export: the pipe's, and those that could not start it.
        self._at_work: set[int] = set()

    @property
    def is_exporting(self) -> bool:
        """Whether this pipe still sends data out of this process."""
        return not self._closed and not self.exporter.disabled

    def start(self) -> bool:
        """Start the thread unless it runs; return whether it does."""
        # Nobody waits here: a signal's handler would, for the code that it interrupted.
        if self._starting.acquire(blocking=False):
            try:
                self._start()
            finally:
                self._starting.release()
        return self._thread is not None

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            thread = threading.Thread(target=self._run, name=f"nemo-lens-{self.signal}", daemon=True)
            try:
                thread.start()
            except RuntimeError as fault:
                # Python 3.12 and later refuse new threads at interpreter exit.
                debug_once(("thread", self.signal), "no export thread for %s: %s", self.signal, fault)
            else:
                self._thread = thread

    def begin_flush(self) -> _Answer:
        """Ask for an export of all that is waiting now."""
        return self._ask(closing=False)

    def begin_close(self) -> _Answer:
        """Ask for a last export and the end of the thread."""
        return self._ask(closing=True)

    def linger(self, deadline: float) -> None:
        """Have the thread survive its closing, as the process ends, and send what still comes until ``deadline``."""
        self._lingers_until = deadline

    @property
    def lingers(self) -> bool:
        """Whether what comes after the end is still sent."""
        return self._lingers_until is not None

    def abandon(self) -> None:
        """Leave the thread to itself: nobody waits for it any more."""
        self._closed = self._abandoned = True
        # Who waits behind a thread that hangs, or for it, need not wait on.
        served = self._served
        if served is not None:
            served.answer.put(False)
        self._answer_the_late()
        self._wake.put(None)

    def _ask(self, closing: bool) -> _Answer:
        request = _Request(closing, self._failures)
        if self._closed:
            request.answer.put(True)
        elif sys.is_finalizing():
            # Daemon threads run no more: what waits for this one, a __del__ for instance, would wait in vain.
            request.answer.put(False)
        elif self._is_at_work_here():
            # An exporter, a signal's handler or a __del__ would wait for the export that it interrupts.
            request.answer.put(False)
        elif self._thread is not None or self.start():
            self._wake.put(request)
            if self._closed:
                # The thread has ended, perhaps before it saw the request.
                request.answer.put(False)
        else:
            self._serve(request)
        return request.answer

    def _run(self) -> None:
        _compat.suppress_instrumentation()
        interval = self._interval_s
        due = time.monotonic() + interval if interval is not None else None
        closing = False
        while not closing or self.lingers:
            request: _Request | None = None
            try:
                request = take(self._wake, None if due is None else due - time.monotonic())
            except Empty:
                due = time.monotonic() + interval if interval is not None else None
            closing = self._serve(request)
            if self._abandoned and not closing:
                self._close_exporter()
                return
        self._closed = True
        self._answer_the_late()

    def _answer_the_late(self) -> None:
        while True:
            try:
                request = self._wake.get_nowait()
            except Empty:
                return
            if request is not None:
                request.answer.put(request.closing)

    def _serve(self, request: _Request | None) -> bool:
        """Export, close and answer as asked; return whether this was the end. Never raises."""
        confirmed = False
        self._served = request
        here = threading.get_ident()
        self._at_work.add(here)
        try:
            confirmed = self._last_work() if request is not None and request.closing else self._work()
        except BaseException as fault:
            if not isinstance(fault, Exception) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C while the main thread exports
            self.report(fault)
        finally:
            self._at_work.discard(here)
        if not confirmed:
            self._failures += 1
        if request is None:
            return False
        if request.closing:
            self._close_exporter()
        # What was asked for includes what another export was at then.
        request.answer.put(self._failures == request.failures)
        return request.closing

    def _is_at_work_here(self) -> bool:
        return threading.get_ident() in self._at_work

    def _close_exporter(self) -> None:
        try:
            self.exporter.close()
        except Exception as fault:  # noqa: BLE001 - as above
            debug_once(("close", self.signal), "closing the %s exporter failed: %r", self.signal, fault)

    def warn_of_loss(self) -> None:
        """Say at WARNING, when the run is over, what of it could not be delivered."""
        raise NotImplementedError

    def _work(self) -> bool:
        """Export all that is waiting; return whether it was confirmed."""
        raise NotImplementedError

    def _last_work(self) -> bool:
        return self._work()

    @contextmanager
    def _export_in_flight(self) -> Iterator[None]:
        with self._exporting:
            self._in_flight_since = time.monotonic()
            try:
                yield
            finally:
                self._in_flight_since = None

    def _came_through(self, succeeded: bool) -> None:
        self.works = succeeded
        if succeeded:
            self.hopeless = False

    def report(self, fault: BaseException) -> None:
        """Say at WARNING why an export failed, once for each type of exception, whose texts may differ each time."""
        kind = type(fault).__name__
        if not is_news(("export", self.signal), kind):
            return
        try:
            reason = str(fault) or kind
        except Exception:  # noqa: BLE001 - the exception of a plug-in may do anything
            reason = kind
        to = self.exporter.plan.endpoint or self.exporter.plan.name
        warn("%s could not be exported to %s: %s", self.signal, to, reason)

    def before_fork(self, deadline: float) -> None:
        """Wait for an export in flight, and keep the next one from starting."""
        if self._thread is not None and self._exporting.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._held_by = threading.get_ident()

    def after_fork_in_parent(self) -> None:
        """Let exports go on."""
        if self._held_by == threading.get_ident():
            self._held_by = None
            self._exporting.release()

    def after_fork_in_child(self) -> None:
        """Start empty: what was waiting is the parent's to send."""
        unsafe = self._thread is not None and self._held_by != threading.get_ident()
        since = self._in_flight_since
        if since is not None and time.monotonic() - since > SHORT_MS / 1000:
            self.works = False
        self._reset()
        if unsafe:
            self.exporter.after_unsafe_fork()


def wait_for(answer: _Answer, deadline: float) -> bool:
    """Return the answer, False when it does not come until ``deadline``."""
    try:
        return take(answer, deadline - time.monotonic())
    except Empty:
        return False


def late_of(answers: Iterable[tuple[_Answer, float]], share: float = 1.0) -> list[tuple[_Answer, float]]:
    """Wait for answers, each with its deadline, for ``share`` of the time until then; return those still to come."""
    now = time.monotonic()
    late = []
    for answer, deadline in answers:
        try:
            take(answer, now + (deadline - now) * share - time.monotonic())
        except Empty:
            late.append((answer, deadline))
    return late
