"""The telemetry handle: one run of this process, from set-up to a bounded shutdown."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, attach
from opentelemetry.sdk.resources import Resource

# _live is imported here and not at the first span: a fork in the middle of that import would leave its lock held.
from nemo_lens.api import _live, state  # noqa: F401
from nemo_lens.api._diagnostics import debug_once
from nemo_lens.api.backend import LENS_SCOPE, NOOP_BACKEND, install_backend
from nemo_lens.api.fallbacks import NULL_METER, NULL_PROVIDER, NULL_TRACER
from nemo_lens.sdk import _compat, fork, logging_bridge, process_end
from nemo_lens.sdk.context import restore_context
from nemo_lens.sdk.metric_pipes import CollectPipe, ReaderPipe
from nemo_lens.sdk.outgoing import Outgoing
from nemo_lens.sdk.pipe import SHORT_MS, ExportPipe, late_of, wait_for
from nemo_lens.sdk.providers import Logs, Metrics, Traces
from nemo_lens.sdk.queue_pipe import QueuePipe
from nemo_lens.sdk.resources.precedence import forked_resource
from nemo_lens.sdk.sigterm import SigtermFlush
from nemo_lens.sdk.waiting import budget_ms

# Of the time for a shutdown, how much the metrics wait for spans and log records.
_SHARE_OF_THE_OTHERS = 0.25


class OtelHandle:
    """What ``setup_telemetry`` returns when the SDK wheel exports. See ``nemo_lens.api.TelemetryHandle``."""

    def __init__(
        self,
        resource: Resource,
        timeout_ms: int,
        flush_timeout_ms: int,
        traces: Traces | None,
        span_pipe: QueuePipe | None,
        metrics: Metrics | None,
        metric_pipe: CollectPipe | ReaderPipe | None,
        logs: Logs | None,
        log_pipe: QueuePipe | None,
        outgoing: tuple[Outgoing, ...],
        reports_itself: bool,
        version: str,
    ) -> None:
        self._resource = resource
        self._timeout_ms = timeout_ms
        self._flush_timeout_ms = flush_timeout_ms
        self._traces = traces
        self._metrics = metrics
        self._logs = logs
        self._span_pipe = span_pipe
        self._metric_pipe = metric_pipe
        self._log_pipe = log_pipe
        self._outgoing = outgoing
        self._reports_itself = reports_itself
        self._version = version
        self._closed = False
        self._told_loss = True  # while nothing was opened
        self._sigterm: SigtermFlush | None = None
        self._forget_exit: Callable[[], None] = lambda: None
        self._parent_token: Any = None
        self.tracer_provider: Any = traces.provider if traces else NULL_PROVIDER
        self.meter_provider: Any = metrics.provider if metrics else NULL_PROVIDER
        self.logger_provider: Any = logs.provider if logs else NULL_PROVIDER
        self.tracer: Any = self.tracer_provider.get_tracer(LENS_SCOPE, version) if traces else NULL_TRACER
        self.meter: Any = self.meter_provider.get_meter(LENS_SCOPE, version) if metrics else NULL_METER

    def open(self, parent: Context | None, *, bridge_root: bool = False) -> None:
        """Start the pipes, connect them to the providers, and arrange for the end of the process.

        Args:
            parent: context of the parent of root spans. Made current here for the application's own spans in this
                thread; spans of the API's helpers have it in every thread.
            bridge_root: whether the records of the root logger are exported until the shutdown.
        """
        _retire_inherited()
        if self._metrics is not None:
            self._metrics.begin_run(self._resource)
            if self._reports_itself:
                self._metrics.report_on(self._pipes(), self._version)
        for pipe in self._pipes():
            pipe.start()
        if self._traces is not None:
            self._traces.processor.attach(self._span_pipe)
        outlet = self._metrics.outlet if self._metrics is not None else None
        if outlet is not None and isinstance(self._metric_pipe, CollectPipe):
            outlet.pipe = self._metric_pipe
        if self._logs is not None:
            self._logs.outlet.pipe = self._log_pipe
        logging_bridge.connect(self, self._logs and self._logs.provider, attach=bridge_root and self._logs is not None)
        if parent is not None and not trace.get_current_span().get_span_context().is_valid:
            self._parent_token = attach(parent)
        fork.register(self)
        self._forget_exit = process_end.at_exit(self, OtelHandle._close_quietly)
        process_end.at_multiprocessing_exit(self, OtelHandle._close_quietly)
        self._told_loss = False
        global _latest
        _latest = weakref.ref(self)

    @property
    def resource_attributes(self) -> Mapping[str, Any]:
        """The attributes of the resource that is exported; a host application's provider keeps its own on spans."""
        return dict(self._resource.attributes)

    @property
    def is_exporting(self) -> bool:
        """Whether data leaves this process."""
        return not self._closed and any(pipe.is_exporting for pipe in self._pipes())

    @property
    def is_shutdown(self) -> bool:
        """Whether ``shutdown`` has been called."""
        return self._closed

    @property
    def spans_go_to(self) -> str:
        """Where spans are exported to: endpoint, file pattern or exporter's name; empty when they are not."""
        plan = self._span_pipe.exporter.plan if self._span_pipe is not None else None
        return "" if plan is None else plan.endpoint or plan.name

    def lost_spans(self) -> int:
        """Return how many ended, sampled spans have not been confirmed by the exporter, or not yet."""
        return 0 if self._span_pipe is None else self._span_pipe.lost()

    def open_spans(self) -> list[str]:
        """Return the names of the spans that have not ended, in the order they started, for tests."""
        return [] if self._traces is None else [span.name for span in self._traces.processor.open_spans()]

    def restart_metrics(self) -> None:
        """Let all sums go on from zero, for tests."""
        if self._metrics is not None:
            _compat.restart_metrics(self._metrics.provider, self._metrics.reader, forked=False)

    def force_flush(self, timeout_ms: float | None = None) -> bool:
        """Export what is waiting of all signals.

        Args:
            timeout_ms: milliseconds in total, at most a day; default ``OTEL_BSP_EXPORT_TIMEOUT``. What is no number
                means the default, with a WARNING.

        Returns:
            Whether all of it was confirmed in time.
        """
        deadline = _deadline(budget_ms(timeout_ms, self._flush_timeout_ms))
        answers = [pipe.begin_flush() for pipe in self._pipes()]
        # All are asked before any is waited for, and each is waited for.
        confirmed = [wait_for(answer, deadline) for answer in answers]
        return all(confirmed)

    def shutdown(self, timeout_ms: float | None = None) -> None:
        """Close open spans, flush all signals, stop. Idempotent, never raises.

        Args:
            timeout_ms: milliseconds in total, at most a day, also when a collector hangs; default the configuration's
                ``shutdown_timeout_ms``. What is no number means the default, with a WARNING.
        """
        self._shutdown("shutdown", timeout_ms)

    def install_sigterm_handler(self, timeout_ms: int = 2000) -> None:
        """Flush on SIGTERM within ``timeout_ms`` milliseconds, then do what SIGTERM did before.

        Where that is the end of the process, telemetry is closed: open spans end as truncated, and what was lost is
        said. Where the application handles or ignores SIGTERM, telemetry goes on.

        Call it in the main thread. The handler only wakes a thread that waits for it, since flushing in the
        signal's own frame can meet a lock that the interrupted code holds. While the main thread is in a C call, where
        no handler runs, another thread flushes and ends the process. A forked child has the action from before; it may
        call this for itself.

        Args:
            timeout_ms: milliseconds that SIGTERM waits, at most a day. What is no number means the default, with a
                WARNING.
        """
        if self._sigterm is None:
            self._sigterm = SigtermFlush(
                lambda left_ms: self._shutdown("SIGTERM", left_ms), self.force_flush, budget_ms(timeout_ms, 2000)
            )
        self._sigterm.install()

    def __enter__(self) -> OtelHandle:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()

    @property
    def adopt(self) -> Callable[[Any], None] | None:
        """What notes a span on a host's provider as started through Lens; None on a provider of ours."""
        traces = self._traces
        return None if traces is None or traces.owned else traces.processor.adopt

    def _pipes(self) -> list[ExportPipe]:
        return [pipe for pipe in (self._span_pipe, self._metric_pipe, self._log_pipe) if pipe is not None]

    def _shutdown(self, reason: str, timeout_ms: float | None) -> None:
        deadline = _deadline(budget_ms(timeout_ms, self._timeout_ms))
        # A job that forks its workers anew for each epoch would wait in each of them.
        for_hopeless = min(deadline, _deadline(SHORT_MS)) if timeout_ms is None else deadline
        if self._closed:
            # Another thread, or the code that a signal interrupted, may be at it: over means over.
            for answer in [pipe.begin_close() for pipe in self._pipes()]:
                wait_for(answer, deadline)
            if reason != "shutdown":  # the process ends, perhaps before the other one can say it
                self._warn_of_loss()
            return
        self._closed = True
        try:
            self._close(reason, deadline, for_hopeless)
        except Exception as fault:  # noqa: BLE001 - the end of telemetry must not be the end of the job
            debug_once("shutdown", "shutting telemetry down failed: %r", fault, exc_info=True)

    def _close(self, reason: str, deadline: float, for_hopeless: float) -> None:
        def until(pipe: ExportPipe) -> float:
            return for_hopeless if pipe.hopeless else deadline

        if _latest is not None and _latest() is self:  # a later run's are not ours to take away
            state.set_enabled_span_groups(())
            install_backend(NOOP_BACKEND)
        if reason == "SIGTERM":
            # The interrupted code may hold the lock of an open span, and closing that span wait for it.
            for pipe in self._pipes():
                pipe.begin_flush()
        if self._traces is not None and self._traces.processor.pipe is self._span_pipe:
            self._traces.processor.close_open_spans(reason)
        logs = self._log_pipe
        if logs is not None and reason == "exit" and logs.exporter.can_be_made_again:
            # Functions that were registered with atexit before the set-up still come, and log.
            logs.linger(until(logs))
        else:
            # Before the last export begins: what is logged after that would be queued for nobody and counted as lost.
            self._disconnect_logging()
        last = self._metric_pipe if self._reports_itself else None
        answers = [(pipe.begin_close(), until(pipe)) for pipe in self._pipes() if pipe is not last]
        try:
            if last is not None:
                # What it collects says how the others ended. When they hang, it is sent nevertheless.
                answers = late_of(answers, _SHARE_OF_THE_OTHERS)
                answers.append((last.begin_close(), until(last)))
            late_of(answers)
        finally:  # also when Ctrl-C ends the waiting, so that nothing waits again at exit
            self._let_go(reason)

    def _let_go(self, reason: str) -> None:
        for pipe in self._pipes():
            if not pipe.lingers:
                pipe.abandon()
        self._disconnect()
        self._warn_of_loss()
        if self._sigterm is not None and reason != "SIGTERM":
            self._sigterm.uninstall()
        if self._parent_token is not None:
            restore_context(self._parent_token)
        self._forget_exit()

    def _warn_of_loss(self) -> None:
        told, self._told_loss = self._told_loss, True
        for pipe in [] if told else self._pipes():
            pipe.warn_of_loss()

    def _disconnect(self) -> None:
        # Processor and outlets are permanent: a later run may have them by now.
        if self._traces is not None and self._traces.processor.pipe is self._span_pipe:
            self._traces.processor.detach()
        if self._metrics is not None and self._metrics.self_metrics is not None:
            self._metrics.self_metrics.end(self._pipes())
        outlet = self._metrics.outlet if self._metrics is not None else None
        if outlet is not None and outlet.pipe is self._metric_pipe:
            outlet.pipe = None
        if self._log_pipe is not None and self._log_pipe.lingers:
            return
        if self._logs is not None and self._logs.outlet.pipe is self._log_pipe:
            self._logs.outlet.pipe = None
        self._disconnect_logging()

    def _disconnect_logging(self) -> None:
        logging_bridge.disconnect(self, owned=self._logs is not None and self._logs.owned)

    def _close_quietly(self) -> None:
        self._shutdown("exit", None)

    def before_fork(self, deadline: float) -> None:
        """Hold SIGTERM back where it has our handler; the pipes wait for themselves."""
        if self._sigterm is not None:
            self._sigterm.before_fork()

    def after_fork_in_parent(self) -> None:
        """Let SIGTERM through again."""
        if self._sigterm is not None:
            self._sigterm.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """Export as the child: its pid and instance, its own counts, also when multiprocessing ends it."""
        if self._sigterm is not None:
            self._sigterm.after_fork_in_child()
        self._renew_providers()
        if self._closed:
            # Forked while the parent's shutdown waits: this run is over here.
            for pipe in self._pipes():
                pipe.abandon()
            self._disconnect()
        else:
            self._become_child()

    def _renew_providers(self) -> None:
        if self._metrics is not None:
            _compat.restart_metrics(self._metrics.provider, self._metrics.reader, forked=True)
            fork.renew_locks(self._metrics.provider)
            fork.renew_locks(self._metrics.reader)
        if self._traces is not None and self._traces.owned:
            fork.renew_locks(self._traces.provider)
        if self._logs is not None:
            # A host's, too: every logging call goes through it.
            fork.renew_locks(self._logs.provider)

    def _become_child(self) -> None:
        self._resource = forked_resource(self._resource)
        for outgoing in self._outgoing:
            if outgoing.resource is not None:
                outgoing.resource = self._resource
        if self._metrics is not None:
            self._metrics.set_resource(self._resource)
        failing = any(pipe.works is False for pipe in self._pipes())
        for pipe in self._pipes():
            pipe.hopeless = failing and not pipe.works
            # Now, because Python 3.12 refuses new threads at exit, and after the metrics: their thread collects.
            pipe.start()
        process_end.at_multiprocessing_exit(self, OtelHandle._close_quietly)


# The handle opened last, in this process or in the parent it was forked from.
_latest: weakref.ref[OtelHandle] | None = None


def _retire_inherited() -> None:
    """Finish the run that a forked child inherited, when it sets up for itself: its threads would go on beside."""
    inherited = _latest() if _latest is not None else None
    if inherited is not None and not inherited.is_shutdown:
        inherited.shutdown()


def _deadline(timeout_ms: float) -> float:
    return time.monotonic() + timeout_ms / 1000
