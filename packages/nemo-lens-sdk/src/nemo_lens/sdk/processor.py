"""The Lens span processor: scoped attributes, threads, the table of open spans, the hand-over to the pipe.

One processor for all of it, since three in a row cost more than the span. It stays on its provider for good, because
processors cannot be removed, and delegates to the pipe of the present run or to nothing.

On a provider of ours it is the active processor itself, which spares every span three calls; processors that the
application adds there follow it.
"""

from __future__ import annotations

import threading
from threading import get_ident
from time import monotonic

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, SynchronousMultiSpanProcessor

from nemo_lens.api._diagnostics import debug_once
from nemo_lens.api.scopes import current_scope
from nemo_lens.api.semconv import NEMO_SPAN_TRUNCATED, NEMO_SPAN_TRUNCATED_REASON, THREAD_ID, THREAD_NAME
from nemo_lens.sdk import _compat, fork
from nemo_lens.sdk.pipe import wait_for
from nemo_lens.sdk.queue_pipe import QueuePipe

_SAMPLED = 1


class LensSpanProcessor(SynchronousMultiSpanProcessor):
    """Hands ended, sampled spans of this process to the pipe.

    Args:
        owns_provider: whether the provider is Lens' own. On a host application's, only spans started through Lens are
            closed at shutdown.
    """

    def __init__(self, owns_provider: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the SDK leaves it untyped
        self.owns_provider = owns_provider
        # Processors the application added to a provider of ours.
        self._followers: tuple[SpanProcessor, ...] = ()
        self.pipe: QueuePipe | None = None
        # Whether spans that start belong to the run: no longer when it closes.
        self._takes_more = False
        # Spans started in this process and this run, by span id, in the order they were started.
        self._open: dict[int, Span] = {}
        self._started_through_lens: set[int] = set()
        self._main_thread = threading.main_thread().ident
        fork.register(self)

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Add a processor of the application's, called after this one."""
        self._followers = (*self._followers, span_processor)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Add the attributes of the enclosing scopes, and of a thread beside the main one; note the span as open."""
        if self._takes_more:
            self._open[span.context.span_id] = span
            scoped = current_scope.get()
            if scoped:
                present = span.attributes or {}
                missing = {key: value for key, value in scoped.items() if key not in present}
                if missing:  # a helper of the API's has given them already
                    _compat.add_attributes(span, missing)
            if get_ident() != self._main_thread:
                _name_thread(span)
        for follower in self._followers:
            follower.on_start(span, parent_context=parent_context)

    def _on_ending(self, span: Span) -> None:
        for follower in self._followers:
            follower._on_ending(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Queue the span, unless a parent process or an earlier run started it."""
        context = span.context
        pipe = self.pipe
        if self._open.pop(context.span_id, None) is not None and pipe is not None and context.trace_flags & _SAMPLED:
            pipe.put(span)
        if self._started_through_lens:
            self._started_through_lens.discard(context.span_id)
        for follower in self._followers:
            follower.on_end(span)

    def adopt(self, span: Span) -> None:
        """Note a span on a host's provider as started through Lens."""
        if not self.owns_provider and span.context is not None and span.context.span_id in self._open:
            self._started_through_lens.add(span.context.span_id)

    def attach(self, pipe: QueuePipe | None) -> None:
        """Hand what starts from now on to the pipe of a new run."""
        self.pipe = pipe
        self._takes_more = pipe is not None

    def open_spans(self) -> list[Span]:
        """Return the spans of this process and run that have not ended, in the order they started."""
        return list(self._open.values())

    def close_open_spans(self, reason: str) -> int:
        """End what is still open, innermost first, marked ``nemo.span.truncated``; return how many there were.

        Spans that start later belong to no run. One that another thread is ending is handed over until ``detach``.
        """
        self._takes_more = False
        # list() of a dict's items is one step; a loop would see other threads' spans come and go.
        for span_id in [] if self.owns_provider else list(self._open):
            if span_id not in self._started_through_lens:
                self._open.pop(span_id, None)
        closed = 0
        for span in reversed(list(self._open.values())):
            try:
                # Its own thread may end it at any moment, and the SDK warns of whatever comes after that.
                if span.is_recording():
                    span.set_attribute(NEMO_SPAN_TRUNCATED, True)
                if span.is_recording():
                    span.add_event(NEMO_SPAN_TRUNCATED, {NEMO_SPAN_TRUNCATED_REASON: reason})
                if span.is_recording():
                    span.end()
                    closed += 1
            except Exception as fault:  # noqa: BLE001 - one bad span must not keep the others open
                debug_once(("truncate", type(fault)), "could not close span %r: %r", span, fault, exc_info=True)
        return closed

    def detach(self) -> None:
        """Stop handing over; spans that end later belong to no run."""
        self.pipe = None
        self._takes_more = False
        self._open = {}
        self._started_through_lens = set()

    def before_fork(self, deadline: float) -> None:
        """Do nothing."""

    def after_fork_in_parent(self) -> None:
        """Do nothing."""

    def after_fork_in_child(self) -> None:
        """Forget the parent's open spans, which are the parent's to export; the thread that forked is the main one."""
        self._main_thread = get_ident()
        self._open = {}
        self._started_through_lens = set()

    def shutdown(self) -> None:
        """Shut the application's processors down; the handle closes the pipe."""
        for follower in self._followers:
            follower.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what is waiting, within ``timeout_millis``."""
        deadline = monotonic() + timeout_millis / 1000
        pipe = self.pipe
        done = pipe is None or wait_for(pipe.begin_flush(), deadline)
        for follower in self._followers:
            left = max(0.0, deadline - monotonic())
            done = follower.force_flush(int(left * 1000)) and done
        return done


def _name_thread(span: Span) -> None:
    # The operating system's id, which profilers know, too.
    if THREAD_ID not in (span.attributes or {}):
        thread = {THREAD_ID: threading.get_native_id(), THREAD_NAME: threading.current_thread().name}
        _compat.add_attributes(span, thread)
