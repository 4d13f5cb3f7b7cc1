"""From a configuration to a handle: everything is made and checked first, and installed only when all of it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.sdk.metrics.export import MetricExporter

from nemo_lens.api._diagnostics import warn, warn_once
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.api.identity import derive_run_uuid, ensure_run_id
from nemo_lens.api.semconv import NEMO_RUN_ID, NV_DL_RUN_UUID
from nemo_lens.sdk import providers, settings
from nemo_lens.sdk.exporters import ExporterPlan, Signal, class_name, plan_exporter
from nemo_lens.sdk.handle import OtelHandle
from nemo_lens.sdk.identity import trace_id_of_run
from nemo_lens.sdk.metric_pipes import CollectPipe, ReaderPipe
from nemo_lens.sdk.outgoing import Outgoing, OutgoingLogs, OutgoingSpans
from nemo_lens.sdk.per_process import PerProcessExporter
from nemo_lens.sdk.queue_pipe import QueuePipe
from nemo_lens.sdk.resources.caller import caller_attributes
from nemo_lens.sdk.resources.precedence import build_resource, rank_of


def build_handle(
    config: NemoLensConfig,
    resource_attributes: Mapping[str, Any] | None,
    span_exporter: Any,
    metric_reader: Any,
    log_exporter: Any,
    version: str,
) -> OtelHandle:
    """Return a handle whose providers are installed and whose pipes wait to be opened.

    Args:
        config: the settings.
        resource_attributes: the caller's.
        span_exporter: an exporter to use instead of the configured one, shared with forked children as it is.
        metric_reader: a reader to use instead of ours; an exporter, as tests give, goes behind ours.
        log_exporter: like ``span_exporter``.
        version: version for the instrumentation scopes.

    Raises:
        ValueError: for a setting that cannot work; nothing has been installed or started then.
    """
    settings.validate_sampler_and_limits()
    settings.validate_providers()
    span_settings, log_settings = settings.queue_settings("BSP"), settings.queue_settings("BLRP")
    interval_s, timeout_s = settings.metric_interval_s(), settings.metric_timeout_s()
    settings.exemplar_filter()
    settings.reports_itself("")
    given = caller_attributes(resource_attributes)
    run_id = ensure_run_id(str(given.get(NEMO_RUN_ID) or config.run_id))
    resource = build_resource(config, run_id, given)
    rank = rank_of(resource.attributes)

    def plan(signal: Signal, given: Any) -> PerProcessExporter:
        if given is not None:
            kind = type(given)
            return PerProcessExporter(
                ExporterPlan(kind.__name__, "given", _constant(given), component=class_name(kind))
            )
        return PerProcessExporter(plan_exporter(signal, config, run_id=run_id, rank=rank))

    span_exporting = plan("traces", span_exporter) if config.traces_enabled else None
    metric_exporting = plan("metrics", metric_reader) if config.metrics_enabled else None
    log_exporting = plan("logs", log_exporter) if config.logs_enabled or log_exporter is not None else None
    reports_itself = metric_exporting is not None and settings.reports_itself(metric_exporting.plan.transport)
    _warn_of_grpc_fork_support(span_exporting, metric_exporting, log_exporting)

    traces = providers.prepare_traces(resource) if span_exporting else None
    reader = None if isinstance(metric_reader, MetricExporter) else metric_reader
    metrics = providers.prepare_metrics(resource, reader) if metric_exporting else None
    logs = providers.prepare_logs(resource) if log_exporting else None
    spans_out = OutgoingSpans(resource if traces is not None and traces.owned else None)
    logs_out = OutgoingLogs(resource if logs is not None and logs.owned else None)
    outgoing: tuple[Outgoing, ...] = (spans_out, logs_out)
    handle = OtelHandle(
        resource=resource,
        timeout_ms=config.shutdown_timeout_ms,
        flush_timeout_ms=int(span_settings.export_timeout_s * 1000),
        traces=traces,
        span_pipe=QueuePipe("traces", span_exporting, span_settings, spans_out) if span_exporting else None,
        metrics=metrics,
        metric_pipe=_metric_pipe(metric_exporting, metrics, interval_s, timeout_s),
        logs=logs,
        log_pipe=QueuePipe("logs", log_exporting, log_settings, logs_out) if log_exporting else None,
        outgoing=outgoing,
        reports_itself=reports_itself,
        version=version,
    )
    if traces is not None and traces.ids is not None:
        # An inherited UUID first: a launcher outside the job cannot derive what its job would.
        run_uuid = resource.attributes.get(NV_DL_RUN_UUID) or derive_run_uuid(run_id=run_id)
        traces.ids.fixed_trace_id = trace_id_of_run(str(run_uuid or run_id)) if config.single_trace else None
    elif config.single_trace:
        warn("single_trace has no effect: trace ids come from the application's own tracer provider")
    providers.install(traces, metrics, logs)
    return handle


def _metric_pipe(
    exporting: PerProcessExporter | None, metrics: providers.Metrics | None, interval_s: float, timeout_s: float
) -> CollectPipe | ReaderPipe | None:
    if exporting is None or metrics is None:
        return None
    if metrics.outlet is None:
        return ReaderPipe(exporting, metrics.reader, timeout_s)
    return CollectPipe(exporting, metrics.reader, interval_s, timeout_s)


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _warn_of_grpc_fork_support(*exporting: PerProcessExporter | None) -> None:
    over_grpc = any(exporter is not None and exporter.plan.transport == "grpc" for exporter in exporting)
    if over_grpc and settings.grpc_fork_support():
        warn_once(
            "grpc fork support",
            "GRPC_ENABLE_FORK_SUPPORT is on, with which gRPC can hang forked processes: set it to 0, "
            "or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf for jobs that fork",
        )
