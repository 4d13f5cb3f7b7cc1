"""Telemetry set up into memory, for tests of what spans say."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nemo_lens.api import NemoLensConfig, TelemetryHandle, set_enabled_span_groups, setup_telemetry
from nemo_lens.api._diagnostics import forget_reported


class Recorded:
    """The spans that were exported, and what was logged meanwhile."""

    def __init__(
        self, handle: TelemetryHandle, exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.handle = handle
        self._exporter = exporter
        self._caplog = caplog

    def spans(self) -> list[ReadableSpan]:
        """Return the ended spans in the order they ended."""
        assert self.handle.force_flush(10_000)
        return list(self._exporter.get_finished_spans())

    def names(self) -> list[str]:
        """Return the names of the ended spans in the order they ended."""
        return [span.name for span in self.spans()]

    def named(self, name: str) -> ReadableSpan:
        """Return the one ended span of this name."""
        (span,) = [span for span in self.spans() if span.name == name]
        return span

    def attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of the one ended span of this name."""
        return dict(self.named(name).attributes or {})

    def parents(self) -> dict[str, str | None]:
        """Return the parent's name of each span by the span's name; None for roots."""
        names = {span.context.span_id: span.name for span in self.spans()}
        return {span.name: names[span.parent.span_id] if span.parent else None for span in self.spans()}

    def logged(self, level: int) -> list[str]:
        """Return what Lens has logged at this level."""
        return [record.getMessage() for record in self._records("nemo_lens") if record.levelno == level]

    def complaints_of_opentelemetry(self) -> list[str]:
        """Return what OpenTelemetry has logged at WARNING and above."""
        return [record.getMessage() for record in self._records("opentelemetry") if record.levelno >= logging.WARNING]

    def _records(self, name: str) -> list[logging.LogRecord]:
        return [record for record in self._caplog.get_records("call") if record.name.partition(".")[0] == name]


@contextlib.contextmanager
def recording(
    caplog: pytest.LogCaptureFixture, groups: Iterable[str] = ("g",), fields: Mapping[str, Any] | None = None
) -> Iterator[Recorded]:
    """Set telemetry up with these groups on; at the end, nothing may have upset OpenTelemetry.

    Args:
        caplog: pytest's fixture.
        groups: span groups that are on.
        fields: fields of the configuration.
    """
    forget_reported()
    caplog.set_level(logging.DEBUG, logger="nemo_lens")
    exporter = InMemorySpanExporter()
    handle = setup_telemetry(
        NemoLensConfig(
            **{"enabled": True, "metrics_enabled": False, "span_groups": "", "run_id": "r", **(fields or {})}
        ),
        resource_attributes={"nv.dl.rank": 0},
        span_exporter=exporter,
    )
    try:
        set_enabled_span_groups(groups)
        recorded = Recorded(handle, exporter, caplog)
        assert not trace.get_current_span().get_span_context().is_valid or "TRACEPARENT" in os.environ
        yield recorded
        assert recorded.complaints_of_opentelemetry() == []
    finally:
        handle.shutdown()


def exceptions(span: ReadableSpan) -> list[tuple[Any, Any]]:
    """Return type and message of each exception recorded on a span."""
    events = [event.attributes or {} for event in span.events if event.name == "exception"]
    return [(event["exception.type"], event["exception.message"]) for event in events]
