"""Exporters of other distributions, by their OpenTelemetry entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nemo_lens.api._diagnostics import nearest
from nemo_lens.api._discovery import distribution_of, points
from nemo_lens.sdk.exporters._plan import SIGNALS, ExporterPlan, Signal, class_name, origin
from nemo_lens.sdk.exporters._sinks import ExporterSink, sdk_exporter
from nemo_lens.sdk.exporters.log_throttle import throttle_log_of

if TYPE_CHECKING:
    from nemo_lens.api.config import NemoLensConfig
    from nemo_lens.sdk.exporters.preferences import MetricPreferences

_BUILT_IN = ("otlp", "console", "file")


def plan(signal: Signal, config: NemoLensConfig, preferences: MetricPreferences) -> ExporterPlan:
    """Plan the installed exporter that ``config.exporter`` names, built without arguments as the SDK builds it."""
    name = config.exporter.strip()
    start = f"{origin(config, 'exporter')}={name!r}"
    found = points(_group(signal))
    if name not in found:
        raise ValueError(f"{start}: {_expected(name, signal, sorted(found))}")
    point = found[name]
    try:
        build = point.load()
    except (Exception, SystemExit) as fault:
        raise ValueError(
            f"{start}: {point.value} of {distribution_of(point)} cannot be loaded: {type(fault).__name__}: {fault}"
        ) from fault
    # A metric reader stands in the same entry-point group as the exporters.
    if not callable(build) or (isinstance(build, type) and not hasattr(build, "export")):
        raise ValueError(
            f"{start}: {point.value} of {distribution_of(point)} is no exporter; expected a class with export"
        )

    if isinstance(build, type):
        throttle_log_of(build)

    def make() -> Any:
        return sdk_exporter(signal, ExporterSink(build), f"exporter {name} of {signal}", preferences)

    return ExporterPlan(name=name, transport=name, make=make, component=class_name(build))


def _group(signal: Signal) -> str:
    return f"opentelemetry_{signal}_exporter"


def _expected(name: str, signal: Signal, found: list[str]) -> str:
    known = list(dict.fromkeys((*_BUILT_IN, *found)))
    others = [each for each in SIGNALS if name in points(_group(each))]
    if others:
        return f"it exports {' and '.join(others)} only; expected one of {', '.join(known)}, or {signal}_enabled=False"
    return f"expected one of {', '.join(known)}{nearest(name.lower(), known)}"
