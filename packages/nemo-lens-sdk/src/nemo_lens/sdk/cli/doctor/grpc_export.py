"""One call of the OTLP exporter over gRPC, with its own metadata, credentials and compression, and what came back."""

from __future__ import annotations

import os
import time
from typing import Any

import grpc

from nemo_lens.sdk.cli.doctor.answers import Answer, Answered
from nemo_lens.sdk.exporters import Signal
from nemo_lens.sdk.exporters.otlp import setting


class OneCall:
    """A stub in place of an exporter's, whose first call ends the export."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def Export(self, *args: Any, **options: Any) -> Any:  # noqa: N802 - the name of the service's method
        """Make the call and raise what it met."""
        start = time.monotonic()
        try:
            self._stub.Export(*args, **options)
        except grpc.RpcError as fault:
            code, detail = fault.code(), fault.details() or ""
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                answer = Answer("timeout", detail=detail)
            elif code is grpc.StatusCode.UNAVAILABLE:
                # Also what gRPC itself says when it cannot talk to the other side at all.
                answer = Answer("fault", code.name, detail)
            else:
                answer = Answer("status", code.name, detail, _since(start))
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is the answer
            answer = Answer("fault", detail=f"{type(fault).__name__}: {fault}")
        else:
            answer = Answer("status", "OK", milliseconds=_since(start))
        raise Answered(answer)


def tls_of(exporter: Any, endpoint: str, signal: Signal) -> bool:
    """Return whether the exporter speaks TLS; it says so itself in later versions only."""
    if hasattr(exporter, "_insecure"):
        return not exporter._insecure
    insecure = setting(signal, os.environ, "INSECURE")[1].lower()
    if endpoint.startswith("https:"):
        return True
    return insecure != "true" if insecure else not endpoint.startswith("http:")


def arm(build: Any, timeout_s: float) -> Any:
    """Build the exporter so that its first call raises ``Answered``."""
    exporter = build(timeout=timeout_s)
    # There is no public way to see the status. An exporter that keeps its stub elsewhere just succeeds or fails.
    if hasattr(exporter, "_client"):
        exporter._client = OneCall(exporter._client)
    return exporter


def _since(start: float) -> float:
    return (time.monotonic() - start) * 1000
