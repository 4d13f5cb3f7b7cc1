"""Telemetry recorded in memory, for tests: what the fixture ``nemo_lens_telemetry`` gives."""

from __future__ import annotations

from nemo_lens.sdk.testing.logs import RecordedLog
from nemo_lens.sdk.testing.metrics import RecordedMetric
from nemo_lens.sdk.testing.spans import RecordedSpan
from nemo_lens.sdk.testing.telemetry import RecordedTelemetry

__all__ = ["RecordedLog", "RecordedMetric", "RecordedSpan", "RecordedTelemetry"]
