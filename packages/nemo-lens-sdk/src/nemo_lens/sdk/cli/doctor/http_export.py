"""One request of the OTLP exporter over HTTP, with its own headers, TLS and compression, and what came back."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

import requests
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from nemo_lens.sdk.cli.doctor.answers import Answer, Answered
from nemo_lens.sdk.exporters import Signal
from nemo_lens.sdk.exporters.http_session import ExporterSession

_PROVIDER = re.compile(r"OTEL_PYTHON_EXPORTER_OTLP_HTTP_(\w+_)?CREDENTIAL_PROVIDER")


class OneRequest(ExporterSession):
    """A session for an exporter, whose first request ends the export."""

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """Send the request and raise what it met."""
        # The exporters of some versions follow redirects, which turn the request into a GET; the others do not.
        options["allow_redirects"] = False
        start = time.monotonic()
        try:
            response = super().request(*args, **options)
        except requests.exceptions.Timeout as fault:
            raise Answered(Answer("timeout", detail=str(fault))) from fault
        except Exception as fault:
            raise Answered(Answer("fault", detail=_reason(fault))) from fault
        raise Answered(
            Answer(
                "status",
                str(response.status_code),
                detail=response.reason or "",
                milliseconds=(time.monotonic() - start) * 1000,
                location=response.headers.get("Location", ""),
                foreign=_foreign(response),
            )
        )


def tls_of(exporter: Any, endpoint: str, signal: Signal) -> bool:
    """Return whether the exporter speaks TLS."""
    return endpoint.startswith("https:")


def arm(build: Any, timeout_s: float) -> Any:
    """Build the exporter so that its first request raises ``Answered``."""
    if any(_PROVIDER.fullmatch(name) and os.environ[name] for name in os.environ):
        return build(timeout=timeout_s)  # the provider's session holds the credentials
    return build(timeout=timeout_s, session=OneRequest())


def _foreign(response: requests.Response) -> str:
    """Return what the answer holds in place of an OTLP response, of which refusals need not be one.

    https://opentelemetry.io/docs/specs/otlp/#otlphttp-response demands the content type of the request. Receivers that
    answer with nothing, in JSON, or leave out the type, are common, and exporters look at the status alone.
    """
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if "html" in kind:
        return "a web page"
    if not response.ok or response.is_redirect or "protobuf" in kind:
        return ""
    if kind == "application/json":
        return "" if _is_response_in_json(response.content) else "application/json that is no OTLP response"
    if kind not in ("", "application/octet-stream"):
        return kind
    try:
        ExportTraceServiceResponse.FromString(response.content)  # the other signals' have the same fields
    except DecodeError:
        return "what is no protobuf"
    return ""


def _is_response_in_json(content: bytes) -> bool:
    try:
        answer = json.loads(content)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.keys() <= {"partialSuccess", "partial_success"}


def _reason(fault: BaseException) -> str:
    """Return the innermost message: the outer ones repeat it in Python's own notation."""
    inner: Any = fault
    for _ in range(8):
        reason = getattr(inner, "reason", None)
        parts = [reason, *getattr(inner, "args", ()), inner.__cause__, inner.__context__]
        deeper = next((part for part in parts if isinstance(part, BaseException) and part is not inner), None)
        if deeper is None:
            break
        inner = deeper
    return str(inner) or type(inner).__name__
