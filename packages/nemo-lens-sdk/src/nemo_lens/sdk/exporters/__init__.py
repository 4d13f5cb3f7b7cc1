"""Exporters: decide and check at setup, build in the process that exports."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nemo_lens.sdk.exporters import console, file, otlp, plugins
from nemo_lens.sdk.exporters._plan import ExporterPlan, Signal, class_name
from nemo_lens.sdk.exporters._sinks import fault_of, rejected_of
from nemo_lens.sdk.exporters.preferences import metric_preferences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nemo_lens.api.config import NemoLensConfig

__all__ = ["ExporterPlan", "Signal", "class_name", "fault_of", "metric_preferences", "plan_exporter", "rejected_of"]


def plan_exporter(
    signal: Signal,
    config: NemoLensConfig,
    *,
    run_id: str,
    rank: int | None,
    environ: Mapping[str, str] | None = None,
) -> ExporterPlan:
    """Choose the exporter of a signal, check its settings and import its packages, and build nothing.

    Args:
        signal: ``traces``, ``metrics`` or ``logs``.
        config: Its ``exporter`` and ``file_path`` are read; case is ignored in the three built-in names.
        run_id: The resolved run id, for file names.
        rank: The process's rank, None when unknown, for file names.
        environ: The variables that are checked; ``os.environ`` when None. What stays with an exporter (headers, TLS)
            it reads from ``os.environ`` itself.

    Returns:
        The plan. What its ``make`` builds never raises from ``export``, ``force_flush`` or ``shutdown``.

    Raises:
        ValueError: A setting that cannot work; the message names it, its value and what is accepted.

    Follows https://opentelemetry.io/docs/specs/otel/protocol/exporter/.
    """
    variables = os.environ if environ is None else environ
    preferences = metric_preferences(variables)
    name = config.exporter.strip()
    if name.lower() == "otlp":
        return otlp.plan(signal, variables, preferences, counted=config.metrics_enabled)
    if name.lower() == "console":
        return console.plan(signal, preferences)
    if name.lower() == "file":
        return file.plan(signal, config, preferences, run_id=run_id, rank=rank)
    return plugins.plan(signal, config, preferences)
