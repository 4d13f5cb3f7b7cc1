"""SDK exporters over a sink: the one place where a fault of exporting ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.sdk._compat import LogRecordExporter, LogRecordExportResult, succeeded
from nemo_lens.sdk.exporters.log_throttle import LogThrottle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.trace import ReadableSpan

    from nemo_lens.sdk.exporters._plan import Signal
    from nemo_lens.sdk.exporters.preferences import MetricPreferences
    from nemo_lens.sdk.exporters.rejections import Rejections


class Sink(Protocol):
    """Where batches go. ``send`` may raise or return False: either way the batch is lost."""

    def send(self, batch: Any) -> bool: ...

    def flush(self, timeout_ms: float) -> bool: ...

    def close(self, timeout_ms: float) -> None: ...


class ExporterSink:
    """An exporter of somebody else's, built at the first batch.

    Args:
        build: Makes the exporter; a failed attempt is repeated with the next batch.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._exporter: Any = None
        self._throttle = LogThrottle()

    def send(self, batch: Any) -> bool:
        if self._exporter is None:
            self._exporter = self._build()
        with self._throttle.applied():
            return succeeded(self._exporter.export(batch))

    def flush(self, timeout_ms: float) -> bool:
        flush = getattr(self._exporter, "force_flush", None)
        return flush is None or bool(flush(timeout_ms))

    def close(self, timeout_ms: float) -> None:
        if self._exporter is not None:
            self._exporter.shutdown()


class _SinkExporter:
    """The SDK's exporter interface, common to the three signals, that never raises."""

    _result: Any

    def __init__(self, sink: Sink, label: str, rejections: Rejections | None) -> None:
        self._sink = sink
        self._label = label
        self._closed = False
        self.rejections = rejections
        # Type of what the sink raised at the last batch.
        self.fault = ""

    def _send(self, batch: Any) -> Any:
        """Send a batch; whatever goes wrong is the result ``FAILURE`` and one WARNING per distinct fault."""
        self.fault = ""
        if self.rejections is not None:
            self.rejections.clear()
        if self._closed:
            return self._result.FAILURE
        try:
            sent = self._sink.send(batch)
        except Exception as fault:  # noqa: BLE001 - the exporting thread must survive any exporter
            self.fault = type(fault).__qualname__
            self._warn(fault)
            return self._result.FAILURE
        if not sent:
            warn_once(("export", self._label, None), "%s reported a failure: a batch is lost", self._label)
        return self._result.SUCCESS if sent else self._result.FAILURE

    def force_flush(self, timeout_millis: float = 30_000) -> bool:
        """Pass the flush on; False when it failed."""
        try:
            return self._closed or self._sink.flush(timeout_millis)
        except Exception as fault:  # noqa: BLE001 - same
            self._warn(fault)
            return False

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Close the sink, once."""
        if self._closed:
            return
        self._closed = True
        try:
            self._sink.close(timeout_millis)
        except Exception as fault:  # noqa: BLE001 - same
            self._warn(fault)

    def _warn(self, fault: Exception) -> None:
        kind = ("export", self._label, type(fault), getattr(fault, "errno", None))
        warn_once(kind, "%s failed: %s: %s", self._label, type(fault).__name__, fault)


class _SpanSinkExporter(_SinkExporter, SpanExporter):
    _result = SpanExportResult

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; never raises."""
        return cast(SpanExportResult, self._send(spans))


class _LogSinkExporter(_SinkExporter, LogRecordExporter):
    _result = LogRecordExportResult

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Export log records; never raises."""
        return cast(LogRecordExportResult, self._send(batch))


class _MetricSinkExporter(_SinkExporter, MetricExporter):
    _result = MetricExportResult

    def __init__(self, sink: Sink, label: str, preferences: MetricPreferences, rejections: Rejections | None) -> None:
        MetricExporter.__init__(self, *preferences)
        _SinkExporter.__init__(self, sink, label, rejections)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Export metrics; never raises. The timeout is the transport's own."""
        return cast(MetricExportResult, self._send(metrics_data))


def sdk_exporter(
    signal: Signal, sink: Sink, label: str, preferences: MetricPreferences, rejections: Rejections | None = None
) -> Any:
    """Return an SDK exporter of ``signal`` over ``sink``, called ``label`` in messages."""
    if signal == "metrics":
        return _MetricSinkExporter(sink, label, preferences, rejections)
    kind = _SpanSinkExporter if signal == "traces" else _LogSinkExporter
    return kind(sink, label, rejections)


def fault_of(exporter: Any) -> str:
    """Return the name of the exception for which the last batch of an exporter of ours failed, if it was one."""
    return exporter.fault if isinstance(exporter, _SinkExporter) else ""


def rejected_of(exporter: Any) -> int:
    """Return how much of the last batch, which an exporter of ours delivered, the receiver rejected."""
    rejections = exporter.rejections if isinstance(exporter, _SinkExporter) else None
    return 0 if rejections is None else rejections.number
