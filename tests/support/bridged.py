"""Telemetry with logs set up into memory, for tests of the logging bridge."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nemo_lens.api import NemoLensConfig, TelemetryHandle, setup_telemetry
from nemo_lens.api._diagnostics import forget_reported
from nemo_lens.sdk import _compat


class Bridged:
    """The log records that were exported."""

    def __init__(self, handle: TelemetryHandle, exporter: Any) -> None:
        self.handle = handle
        self._exporter = exporter

    def records(self) -> list[Any]:
        """Return the exported log records in order."""
        assert self.handle.force_flush(10_000)
        return [item.log_record for item in self._exporter.get_finished_logs()]

    def bodies(self) -> list[Any]:
        """Return their bodies."""
        return [record.body for record in self.records()]

    def record(self) -> Any:
        """Return the one exported log record."""
        (record,) = self.records()
        return record

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the one exported log record."""
        return dict(self.record().attributes or {})

    def scopes(self) -> list[str]:
        """Return the names of the instrumentation scopes, in the records' order."""
        assert self.handle.force_flush(10_000)
        return [item.instrumentation_scope.name for item in self._exporter.get_finished_logs()]


@contextlib.contextmanager
def bridging(*, logs_enabled: bool = True, exporter: Any = None) -> Iterator[Bridged]:
    """Set telemetry up with a log exporter in memory.

    Args:
        logs_enabled: whether set-up attaches the bridge to the root logger.
        exporter: another exporter.
    """
    forget_reported()
    exporter = exporter or _compat.InMemoryLogRecordExporter()
    handle = setup_telemetry(
        NemoLensConfig(enabled=True, metrics_enabled=False, logs_enabled=logs_enabled, span_groups="", run_id="r"),
        resource_attributes={"nv.dl.rank": 0},
        span_exporter=InMemorySpanExporter(),
        log_exporter=exporter,
    )
    try:
        yield Bridged(handle, exporter)
    finally:
        handle.shutdown()


@contextlib.contextmanager
def fresh_logger(name: str, level: int = logging.DEBUG) -> Iterator[logging.Logger]:
    """Give a logger that shows every record, and put it back as it was."""
    logger = logging.getLogger(name)
    before = (logger.level, logger.propagate, logger.disabled, list(logger.handlers))
    logger.setLevel(level)
    try:
        yield logger
    finally:
        logger.setLevel(before[0])
        logger.propagate, logger.disabled, logger.handlers[:] = before[1], before[2], before[3]
