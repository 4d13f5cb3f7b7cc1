"""The pipes of metrics, which hold no queue: the numbers wait in the SDK's aggregations."""

from __future__ import annotations

from typing import Any

from nemo_lens.sdk.per_process import PerProcessExporter
from nemo_lens.sdk.pipe import ExportPipe


class CollectPipe(ExportPipe):
    """The pipe of metrics: collects from a reader, which exports to what it was built with."""

    def __init__(self, exporter: PerProcessExporter, reader: Any, interval_s: float, timeout_s: float) -> None:
        self.reader = reader
        self._timeout_ms = timeout_s * 1000
        self.last_export_failed = False
        super().__init__("metrics", exporter, interval_s)

    def _work(self) -> bool:
        with self._exporting:
            self.last_export_failed = False
            self.reader.collect(timeout_millis=self._timeout_ms)
            return not self.last_export_failed


class ReaderPipe(ExportPipe):
    """The pipe of a metric reader of the caller's, which exports in its own time; here it is flushed and shut down."""

    def __init__(self, exporter: PerProcessExporter, reader: Any, timeout_s: float) -> None:
        self.reader = reader
        self._timeout_ms = timeout_s * 1000
        super().__init__("metrics", exporter, None)

    def _work(self) -> bool:
        with self._exporting:
            return self.reader.force_flush(timeout_millis=self._timeout_ms) is not False

    def _last_work(self) -> bool:
        # Shutting down collects once more; flushing first would send the last metrics twice.
        with self._exporting:
            self.reader.shutdown(timeout_millis=self._timeout_ms)
            return True
