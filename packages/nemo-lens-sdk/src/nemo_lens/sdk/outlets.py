"""Where the SDK's metric reader and log processor hand over to the pipes; permanent, as providers are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource

from nemo_lens.sdk import _compat
from nemo_lens.sdk.metric_pipes import CollectPipe
from nemo_lens.sdk.outgoing_metrics import metric_parts
from nemo_lens.sdk.queue_pipe import QueuePipe


class MetricOutlet(MetricExporter):
    """The exporter the reader was built with: passes collections on to the present run's, or to nothing."""

    pipe: CollectPipe | None = None
    resource: Resource | None = None

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Export one collection with this run's resource; called by the reader in the pipe's thread."""
        pipe = self.pipe
        if pipe is None:
            return MetricExportResult.FAILURE
        confirmed = False
        try:
            confirmed = pipe.export(metric_parts(metrics_data, self.resource), timeout_millis)
        except Exception as fault:  # noqa: BLE001 - a plug-in's exporter may raise anything
            pipe.report(fault)
        if not confirmed:
            pipe.last_export_failed = True
            return MetricExportResult.FAILURE
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Return True: the reader holds nothing back."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Do nothing: the pipe closes its exporter."""


class LogOutlet(_compat.LogRecordExporter):
    """The exporter of a simple log processor: queues each record in the present run's pipe, or drops it."""

    pipe: QueuePipe | None = None

    def export(self, batch: Sequence[Any]) -> Any:
        """Queue the records; never waits."""
        pipe = self.pipe
        if pipe is not None:
            for record in batch:
                pipe.put(record)
        return _compat.LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: what waits is in the pipe."""
        return True

    def shutdown(self) -> None:
        """Do nothing: the pipe closes its exporter."""
