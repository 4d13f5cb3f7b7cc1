"""The OpenTelemetry providers: made first, installed once per process, reused by every later set-up.

A provider cannot be replaced once it is global, and processors cannot be removed, so what changes from run to run is
not the provider but what its permanent processor, outlet or exporter delegates to. No private OpenTelemetry global is
touched.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import (
    AlwaysOffExemplarFilter,
    AlwaysOnExemplarFilter,
    ExemplarFilter,
    MeterProvider,
    TraceBasedExemplarFilter,
)
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from nemo_lens.api._diagnostics import warn, warn_once
from nemo_lens.sdk import _compat
from nemo_lens.sdk.exporters.preferences import metric_preferences
from nemo_lens.sdk.identity import LensIdGenerator
from nemo_lens.sdk.outlets import LogOutlet, MetricOutlet
from nemo_lens.sdk.pipe import ExportPipe
from nemo_lens.sdk.processor import LensSpanProcessor
from nemo_lens.sdk.sampling import configured_sampler
from nemo_lens.sdk.self_metrics import SelfMetrics
from nemo_lens.sdk.settings import METRIC_FIRST_SETUP_VARIABLES, exemplar_filter, first_setup_values

_EXEMPLAR_FILTERS: dict[str, Callable[[], ExemplarFilter]] = {
    "trace_based": TraceBasedExemplarFilter,
    "always_on": AlwaysOnExemplarFilter,
    "always_off": AlwaysOffExemplarFilter,
}


@dataclass
class Traces:
    """A tracer provider with the Lens processor on it."""

    provider: Any
    processor: LensSpanProcessor
    # None on a host application's provider, which keeps its own ids.
    ids: LensIdGenerator | None
    first_setup: dict[str, str]
    installed: bool = False

    @property
    def owned(self) -> bool:
        """Whether the provider is Lens' own."""
        return self.processor.owns_provider

    def install(self) -> None:
        """Make the provider global, or put the processor on the host's."""
        if not self.installed:
            self.installed = True
            if self.owned:
                if _is_unset(trace.get_tracer_provider(), "ProxyTracerProvider"):
                    trace.set_tracer_provider(self.provider)
            else:
                self.provider.add_span_processor(self.processor)


@dataclass
class Metrics:
    """A meter provider with a reader of ours, or of the caller's, on it."""

    provider: Any
    reader: Any
    # None when the caller's own reader exports by itself.
    outlet: MetricOutlet | None
    first_setup: dict[str, str]
    installed: bool = False
    had_run: bool = False
    # Made by the first run that wants them.
    self_metrics: SelfMetrics | None = None

    def install(self) -> None:
        """Make the provider global, unless the host application has one: then it stays private to the handle."""
        if not self.installed:
            self.installed = True
            if _is_unset(metrics.get_meter_provider(), "_ProxyMeterProvider"):
                metrics.set_meter_provider(self.provider)

    def begin_run(self, resource: Resource) -> None:
        """Start at zero: what an earlier run measured is not this one's, nor what came between the two."""
        if self.had_run:
            # Here, since a first run, and a job that records through instruments of its own, does without the import.
            from nemo_lens.api.instruments.recorders import forget_attribute_sets

            _compat.restart_metrics(self.provider, self.reader, forked=False)
            forget_attribute_sets()
        self.had_run = True
        self.set_resource(resource)

    def report_on(self, pipes: Iterable[ExportPipe], version: str) -> None:
        """Export metrics about these pipes, too, in this run."""
        if self.self_metrics is None:
            self.self_metrics = SelfMetrics(self.provider, version)
        self.self_metrics.begin(pipes)

    def set_resource(self, resource: Resource) -> None:
        """Put this resource on what is collected from now on."""
        if self.outlet is not None:
            self.outlet.resource = resource
        else:
            _compat.set_metric_resource(self.provider, resource)


@dataclass
class Logs:
    """A logger provider with the log outlet on it."""

    provider: Any
    outlet: LogOutlet
    owned: bool
    installed: bool = False

    def install(self) -> None:
        """Make the provider global, or put the outlet on the host's."""
        if not self.installed:
            self.installed = True
            if self.owned:
                if _is_unset(_logs.get_logger_provider(), "ProxyLoggerProvider"):
                    _logs.set_logger_provider(self.provider)
            else:
                self.provider.add_log_record_processor(_log_processor(self.outlet))


# What earlier set-ups of this process (or of the parent it was forked from) installed. A host's providers are keyed
# weakly: they are the host's.
_own_traces: Traces | None = None
_own_metrics: Metrics | None = None
_own_logs: Logs | None = None
_on_hosts: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def prepare_traces(resource: Resource) -> Traces:
    """Return the traces side to use: the one installed earlier, one on the host's provider, or a new one."""
    current = trace.get_tracer_provider()
    if _own_traces is not None:
        _warn_of_first_setup("sampler and limits", _own_traces.first_setup, first_setup_values(os.environ))
        return _own_traces
    if isinstance(current, TracerProvider):
        if current not in _on_hosts:
            _on_hosts[current] = Traces(current, LensSpanProcessor(owns_provider=False), None, {})
        warn_once(
            ("host", id(current)),
            "the application has installed a tracer provider of its own: spans go through it, "
            "with its ids, sampler and resource",
        )
        side: Traces = _on_hosts[current]
        return side
    if not _is_unset(current, "ProxyTracerProvider"):
        warn(
            "a tracer provider of type %s is installed, which takes no span processors: "
            "Lens exports its own spans only",
            type(current).__name__,
        )
    ids = LensIdGenerator()
    processor = LensSpanProcessor(owns_provider=True)
    provider = TracerProvider(
        sampler=configured_sampler(),
        resource=resource,
        id_generator=ids,
        shutdown_on_exit=False,
        active_span_processor=processor,
    )
    return Traces(provider, processor, ids, first_setup_values(os.environ))


def prepare_metrics(resource: Resource, reader: Any) -> Metrics:
    """Return the metrics side to use: the one installed earlier, or a new one.

    Args:
        resource: resource of a new provider.
        reader: the caller's own reader, or None for ours.

    Raises:
        ValueError: for a variable that holds what there is not, or a reader that another provider has.
    """
    temporality, aggregation = metric_preferences()
    first_setup = first_setup_values(os.environ, METRIC_FIRST_SETUP_VARIABLES)
    known = _own_metrics
    if known is not None and (known.outlet is not None if reader is None else reader is known.reader):
        _warn_of_first_setup("exemplar filter, temporality and histograms", known.first_setup, first_setup)
        if reader is not None and not isinstance(reader, InMemoryMetricReader):
            warn(
                "metric_reader: this %s was shut down with an earlier run of this process and may report nothing now: "
                "give each run a reader of its own",
                type(reader).__name__,
            )
        return known
    if known is not None:
        warn(
            "the meter provider of this process was set up with another metric reader: "
            "only instruments made from this handle's meter reach the new one"
        )
    if reader is not None:
        return Metrics(_meter_provider(reader, resource), reader, None, first_setup)
    outlet = MetricOutlet(
        preferred_temporality=temporality, preferred_aggregation=_compat.safe_aggregations(aggregation)
    )
    # An infinite interval: collected by the pipe's thread, under the pipe's deadline.
    reader = PeriodicExportingMetricReader(outlet, export_interval_millis=float("inf"))
    return Metrics(_meter_provider(reader, resource), reader, outlet, first_setup)


def _meter_provider(reader: Any, resource: Resource) -> MeterProvider:
    # Read here, since the SDK takes no blank for an unset variable, and no upper case.
    chosen = _EXEMPLAR_FILTERS[exemplar_filter()]()
    try:
        provider = MeterProvider([reader], resource=resource, exemplar_filter=chosen, shutdown_on_exit=False)
    except Exception as fault:  # the SDK raises this very class
        raise ValueError(
            f"metric_reader={reader!r} cannot be used: {fault}; give an OpenTelemetry metric reader that is new"
        ) from fault
    _compat.keep_resource(provider)
    return provider


def prepare_logs(resource: Resource) -> Logs:
    """Return the logs side to use: the one installed earlier, one on the host's provider, or a new one."""
    if _own_logs is not None:
        return _own_logs
    current = _logs.get_logger_provider()
    if isinstance(current, LoggerProvider):
        if current not in _on_hosts:
            _on_hosts[current] = Logs(current, LogOutlet(), owned=False)
        side: Logs = _on_hosts[current]
        return side
    outlet = LogOutlet()
    provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_log_record_processor(_log_processor(outlet))
    return Logs(provider, outlet, owned=True)


def _log_processor(outlet: LogOutlet) -> SimpleLogRecordProcessor:
    return SimpleLogRecordProcessor(outlet, **_compat.without_own_metrics(SimpleLogRecordProcessor))


def install(traces: Traces | None, metrics_side: Metrics | None, logs: Logs | None) -> None:
    """Install what has been prepared; the one step of a set-up that others can see."""
    global _own_traces, _own_metrics, _own_logs
    if traces is not None:
        traces.install()
        if traces.owned:
            _own_traces = traces
    if metrics_side is not None:
        metrics_side.install()
        if _own_metrics is None:
            _own_metrics = metrics_side
    if logs is not None:
        logs.install()
        if logs.owned:
            _own_logs = logs


def _is_unset(provider: object, proxy: str) -> bool:
    # The API's placeholder; its class is public for traces and private for metrics.
    return type(provider).__name__ == proxy and type(provider).__module__.startswith("opentelemetry.")


def _warn_of_first_setup(what: str, first: dict[str, str], now: dict[str, str]) -> None:
    changed = sorted(name for name in {*first, *now} if first.get(name) != now.get(name))
    if changed:
        warn(
            "%s stay those of the first set-up in this process; ignored now: %s",
            what,
            ", ".join(f"{name}={now.get(name, '')!r}" for name in changed),
        )
