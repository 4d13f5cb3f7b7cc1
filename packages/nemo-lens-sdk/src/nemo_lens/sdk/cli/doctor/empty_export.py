"""An empty export through the official exporter that set-up would use, and the answer to it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from opentelemetry.sdk.metrics.export import MetricsData

from nemo_lens.sdk._compat import succeeded
from nemo_lens.sdk.cli.doctor.answers import Answer, Answered
from nemo_lens.sdk.exporters import ExporterPlan, Signal

# Transport -> the module that can see one request of it. A transport's libraries are loaded when it is used.
_TRANSPORTS = {
    "grpc": "nemo_lens.sdk.cli.doctor.grpc_export",
    "http/protobuf": "nemo_lens.sdk.cli.doctor.http_export",
}

_EMPTY: dict[str, Any] = {"traces": (), "metrics": MetricsData(resource_metrics=[]), "logs": ()}


def export_nothing(plan: ExporterPlan, signal: Signal, timeout_s: float) -> Answer:
    """Send a request without spans, metrics or log records, and close the exporter again.

    Args:
        plan: A plan of the ``otlp`` exporter.
        signal: What the plan is for.
        timeout_s: Seconds to wait for the answer.
    """
    transport = import_module(_TRANSPORTS[plan.transport])
    try:
        exporter = transport.arm(plan.build, timeout_s)
    except Exception as fault:  # noqa: BLE001 - a certificate that is none, a credential provider that fails
        return Answer("fault", detail=f"{type(fault).__name__}: {fault}")
    tls = transport.tls_of(exporter, plan.endpoint, signal)
    try:
        result = exporter.export(_EMPTY[signal])
    except Answered as answered:
        return replace(answered.answer, tls=tls)
    except Exception as fault:  # noqa: BLE001 - before anything was sent
        return Answer("fault", detail=f"{type(fault).__name__}: {fault}", tls=tls)
    finally:
        exporter.shutdown()
    # An exporter that does not let itself be watched.
    return (
        Answer("status", "OK", tls=tls) if succeeded(result) else Answer("fault", detail="the export failed", tls=tls)
    )
