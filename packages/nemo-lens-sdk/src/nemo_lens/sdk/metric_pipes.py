"""The pipes of metrics, which hold no queue: the numbers wait in the SDK's aggregations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricReader, MetricsData

from nemo_lens.api._diagnostics import warn
from nemo_lens.sdk import _compat
from nemo_lens.sdk.export_counts import ExportCounts
from nemo_lens.sdk.exporters import fault_of, rejected_of
from nemo_lens.sdk.per_process import PerProcessExporter
from nemo_lens.sdk.pipe import ExportPipe

# The scope of the metrics about the telemetry itself.
OWN_SCOPE = "nemo.lens.sdk"


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
        self._is_last = False
        # The application's points of the latest collection.
        self._application_points = 0
        # Those of the last one, as far as they are not confirmed; None while it is not there.
        self._last_points: int | None = None

    @property
    def was_used(self) -> bool:
        """Whether anything was exported in this process, or failed to be."""
        return self.counts.taken > 0

    def _work(self) -> bool:
        self.last_export_failed = False
        self.reader.collect(timeout_millis=self._timeout_ms)
        return not self.last_export_failed

    def _last_work(self) -> bool:
        self._is_last = True
        try:
            return self._work()
        finally:
            if self._last_points is None:
                self._last_points = 0  # there was nothing to collect, or why it could not be has been said

    def warn_of_loss(self) -> None:
        """Say at WARNING what of the last collection could not be delivered, or that there was none."""
        if self._last_points is None:
            # Of an application that has none, an export in flight holds up no others.
            if self._application_points or self._in_flight_since is None:
                warn("the last metrics were dropped: they could not be collected in time")
        elif self._last_points:
            warn("%d data points were dropped: the exporter did not confirm them", self._last_points)

    def export(self, parts: Sequence[MetricsData], timeout_ms: float) -> bool:
        """Export one collection, in its parts; return whether all of it was confirmed.

        Collecting needs no wait before a fork, and may take long where callbacks are slow: a child starts at zero.
        """
        with self._export_in_flight():
            counts = self.counts
            counts.taken += sum(map(_points, parts))
            self._application_points = sum(_points(part, but=OWN_SCOPE) for part in parts)
            if self._is_last:
                self._last_points = self._application_points
            deadline = time.monotonic() + timeout_ms / 1000
            confirmed = True
            reason = ""
            try:
                exporter = self.exporter.get()
                for part in parts if exporter is not None else ():
                    left_ms = max(0.0, deadline - time.monotonic()) * 1000
                    # Nobody waits any more for what a receiver in trouble does not take.
                    if not confirmed and (self._abandoned or not left_ms):
                        break
                    confirmed = self._export(exporter, part, left_ms) and confirmed
            except BaseException as fault:
                reason = type(fault).__qualname__
                self._came_through(False)
                raise
            finally:
                # There was no exporter, or no time.
                counts.fail(counts.inflight, reason)
            return confirmed and exporter is not None

    def _export(self, exporter: Any, part: MetricsData, timeout_ms: float) -> bool:
        number = _points(part)
        succeeded = False
        try:
            succeeded = _compat.succeeded(exporter.export(part, timeout_millis=timeout_ms))
            if not succeeded:
                self.counts.fail(number, fault_of(exporter))
        except Exception as fault:  # noqa: BLE001 - a plug-in's exporter may raise anything
            self.counts.fail(number, type(fault).__qualname__)
            self.report(fault)
        self._came_through(succeeded)
        if not succeeded:
            return False
        rejected = rejected_of(exporter)
        self.counts.confirm(number, rejected)
        if self._is_last and self._last_points is not None:
            self._last_points -= max(0, _points(part, but=OWN_SCOPE) - rejected)
        return not rejected


class ReaderPipe(ExportPipe):
    """The pipe of a metric reader of the caller's, which exports in its own time; here it is flushed and shut down."""

    def __init__(self, exporter: PerProcessExporter, reader: Any, timeout_s: float) -> None:
        self.reader = reader
        self._timeout_ms = timeout_s * 1000
        super().__init__("metrics", exporter, None)

    def _reset(self) -> None:
        super()._reset()
        self._last_confirmed = False

    def _work(self) -> bool:
        with self._export_in_flight():
            return self._flush()

    def _last_work(self) -> bool:
        with self._export_in_flight():
            confirmed = True
            try:
                # One that collects when it is shut down would send the last metrics twice.
                confirmed = _compat.collects_at_shutdown(self.reader) or self._flush()
                self.reader.shutdown(timeout_millis=self._timeout_ms)
            finally:
                self._last_confirmed = confirmed  # or it raised, which has been said
            return confirmed

    def _flush(self) -> bool:
        if is_fetched(self.reader):
            return True
        confirmed = self.reader.force_flush(timeout_millis=self._timeout_ms) is not False
        self._came_through(confirmed)
        return confirmed

    def warn_of_loss(self) -> None:
        """Say at WARNING that the last metrics may not have been delivered."""
        if not self._last_confirmed:
            warn("the last metrics may be lost: their reader did not confirm them in time")


def _points(data: MetricsData, but: str = "") -> int:
    scopes = [
        scope for resource in data.resource_metrics for scope in resource.scope_metrics if scope.scope.name != but
    ]
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
