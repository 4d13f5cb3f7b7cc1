"""The pipes of metrics, which hold no queue: the numbers wait in the SDK's aggregations."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricReader, MetricsData

from nemo_lens.sdk import _compat
from nemo_lens.sdk.export_counts import ExportCounts
from nemo_lens.sdk.exporters import fault_of, rejected_of
from nemo_lens.sdk.per_process import PerProcessExporter
from nemo_lens.sdk.pipe import ExportPipe


class CollectPipe(ExportPipe):
    """The pipe of metrics: collects from a reader, which exports to what it was built with."""

    def __init__(self, exporter: PerProcessExporter, reader: Any, interval_s: float, timeout_s: float) -> None:
        self.reader = reader
        self._timeout_ms = timeout_s * 1000
        self.last_export_failed = False
        super().__init__("metrics", exporter, interval_s)

    def _reset(self) -> None:
        super()._reset()
        # Of data points.
        self.counts = ExportCounts()

    @property
    def was_used(self) -> bool:
        """Whether anything was exported in this process, or failed to be."""
        return self.counts.taken > 0

    def _work(self) -> bool:
        self.last_export_failed = False
        self.reader.collect(timeout_millis=self._timeout_ms)
        return not self.last_export_failed

    def export(self, data: MetricsData, timeout_ms: float) -> bool:
        """Export one collection; return whether it was confirmed. Raises what the exporter raises.

        Collecting needs no wait before a fork, and may take long where callbacks are slow: a child starts at zero.
        """
        with self._exporting:
            counts = self.counts
            counts.taken += _points(data)
            reason = ""
            try:
                exporter = self.exporter.get()
                confirmed = exporter is not None and _compat.succeeded(exporter.export(data, timeout_millis=timeout_ms))
                if confirmed:
                    rejected = rejected_of(exporter)
                    counts.confirm(counts.inflight, rejected)
                    confirmed = not rejected
                reason = fault_of(exporter)
            except BaseException as fault:
                reason = type(fault).__qualname__
                raise
            finally:
                counts.fail(counts.inflight, reason)
            return confirmed


class ReaderPipe(ExportPipe):
    """The pipe of a metric reader of the caller's, which exports in its own time; here it is flushed and shut down."""

    def __init__(self, exporter: PerProcessExporter, reader: Any, timeout_s: float) -> None:
        self.reader = reader
        self._timeout_ms = timeout_s * 1000
        super().__init__("metrics", exporter, None)

    def _work(self) -> bool:
        with self._exporting:
            return self._flush()

    def _last_work(self) -> bool:
        with self._exporting:
            # One that collects when it is shut down would send the last metrics twice.
            confirmed = _compat.collects_at_shutdown(self.reader) or self._flush()
            self.reader.shutdown(timeout_millis=self._timeout_ms)
            return confirmed

    def _flush(self) -> bool:
        return is_fetched(self.reader) or self.reader.force_flush(timeout_millis=self._timeout_ms) is not False


def _points(data: MetricsData) -> int:
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return sum(len(metric.data.data_points) for scope in scopes for metric in scope.metrics)


# The official reader for Prometheus, by module and name: it is no dependency.
_PROMETHEUS = ("opentelemetry.exporter.prometheus", "PrometheusMetricReader")


def is_fetched(reader: Any) -> bool:
    """Return whether somebody fetches the metrics from the reader, so that it has nothing to flush.

    To flush it is to collect for nobody: the Prometheus reader keeps such a collection and adds it to the next scrape,
    where each series is then twice, and the one in memory loses it, with all its deltas. A class of the caller's that
    flushes in a way of its own is left to do so.
    """
    if type(reader).force_flush is not MetricReader.force_flush:
        return False
    return isinstance(reader, InMemoryMetricReader) or any(
        (kind.__module__, kind.__name__) == _PROMETHEUS for kind in type(reader).__mro__
    )
