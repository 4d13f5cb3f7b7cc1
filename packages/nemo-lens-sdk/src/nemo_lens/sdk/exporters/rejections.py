"""What a receiver took and did not keep: OTLP's partial success, at which OpenTelemetry's exporters do not look.

https://opentelemetry.io/docs/specs/otlp/#partial-success
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.sdk._compat import hear_answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from nemo_lens.sdk.exporters._plan import Signal

_SERVICES = "opentelemetry.proto.collector"
# Module and class of the answer, its field, and what that counts.
_ANSWERS: dict[Signal, tuple[str, str, str, str]] = {
    "traces": (f"{_SERVICES}.trace.v1.trace_service_pb2", "ExportTraceServiceResponse", "rejected_spans", "spans"),
    "metrics": (
        f"{_SERVICES}.metrics.v1.metrics_service_pb2",
        "ExportMetricsServiceResponse",
        "rejected_data_points",
        "data points",
    ),
    "logs": (
        f"{_SERVICES}.logs.v1.logs_service_pb2",
        "ExportLogsServiceResponse",
        "rejected_log_records",
        "log records",
    ),
}
# Needs requests, which this exporter alone brings.
SESSION = "nemo_lens.sdk.exporters.http_session"
_CREDENTIALS = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{}CREDENTIAL_PROVIDER"


class Rejections:
    """Adds up what the answers to an export say, of one exporter.

    Args:
        signal: what is exported.
        label: what messages call the exporter.
    """

    def __init__(self, signal: Signal, label: str) -> None:
        module, answer, self._field, self._items = _ANSWERS[signal]
        # Loaded already, by the exporter.
        self._answer: Any = getattr(importlib.import_module(module), answer)
        self._signal = signal
        self._label = label
        self.number = 0

    def clear(self) -> None:
        """Begin with the next export."""
        self.number = 0

    def build(self, build: Callable[..., Any], transport: str) -> Any:
        """Return a new exporter whose answers are read."""
        if transport == "grpc":
            exporter = build()
            hear_answers(exporter, self._read)
            return exporter
        if any(os.environ.get(_CREDENTIALS.format(part)) for part in ("", f"{self._signal.upper()}_")):
            return build()  # the session has to be the provider's, and there is no public way to that
        session = importlib.import_module(SESSION).StrictSession()
        session.hooks["response"].append(self._read_http)
        return build(session=session)

    def _read_http(self, response: Any, *args: Any, **options: Any) -> None:
        kind = response.headers.get("Content-Type", "").lower()
        if response.status_code != 200 or not kind.startswith("application/x-protobuf"):
            return
        from google.protobuf.message import DecodeError  # the exporter has loaded it

        try:
            self._read(self._answer.FromString(response.content))
        except DecodeError as fault:
            debug_once(("answer", self._label), "%s: the answer cannot be read: %s", self._label, fault)

    def _read(self, answer: Any) -> None:
        partial = answer.partial_success
        number = max(0, getattr(partial, self._field))
        self.number += number
        said = partial.error_message or "it does not say why"
        if number:
            kind = ("rejected", self._label)
            warn_once(kind, "%s: the receiver rejected %d %s: %s", self._label, number, self._items, said)
        elif partial.error_message:
            warn_once(("warned", self._label), "%s: the receiver warns: %s", self._label, said)
