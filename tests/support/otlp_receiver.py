"""A real OTLP receiver on loopback, gRPC and HTTP/protobuf, whose behaviour a test chooses.

Both transports listen on free ports of 127.0.0.1 and share one record of what came in. The receiver can accept, refuse
with a status, reject a part of what it takes, answer late, hang without an answer, and demand a header.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from support.otlp_decode import READERS, Record, message_to_json

# signal -> (HTTP path, request type, response type, gRPC servicer, function that adds it to a server)
_SERVICES: dict[str, tuple[str, Any, Any, Any, Any]] = {
    "traces": (
        "/v1/traces",
        trace_service_pb2.ExportTraceServiceRequest,
        trace_service_pb2.ExportTraceServiceResponse,
        trace_service_pb2_grpc.TraceServiceServicer,
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
    ),
    "metrics": (
        "/v1/metrics",
        metrics_service_pb2.ExportMetricsServiceRequest,
        metrics_service_pb2.ExportMetricsServiceResponse,
        metrics_service_pb2_grpc.MetricsServiceServicer,
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server,
    ),
    "logs": (
        "/v1/logs",
        logs_service_pb2.ExportLogsServiceRequest,
        logs_service_pb2.ExportLogsServiceResponse,
        logs_service_pb2_grpc.LogsServiceServicer,
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server,
    ),
}
_REJECTED = {"traces": "rejected_spans", "metrics": "rejected_data_points", "logs": "rejected_log_records"}
_BY_PATH = {service[0]: signal for signal, service in _SERVICES.items()}


@dataclass(frozen=True)
class Request:
    """One export request as it came in."""

    signal: str
    transport: str
    headers: dict[str, str]
    payload: Record
    accepted: bool


@dataclass
class _Behaviour:
    http_status: int = 200
    grpc_status: grpc.StatusCode = grpc.StatusCode.OK
    delay_s: float = 0.0
    hang: bool = False
    header: tuple[str, str] | None = None
    # How much of each request is rejected, and what is said of it.
    rejects: tuple[int, str] = (0, "")
    released: threading.Event = field(default_factory=threading.Event)


class OtlpReceiver:
    """Receive OTLP over gRPC and HTTP/protobuf on 127.0.0.1 and keep every request."""

    def __init__(self) -> None:
        self._behaviour = _Behaviour()
        self._requests: list[Request] = []
        self._changed = threading.Condition()
        self._http = _HttpServer(("127.0.0.1", 0), _HttpRequest)
        self._http.receiver = self
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self._grpc = grpc.server(ThreadPoolExecutor(max_workers=16))
        for signal, (_, _, response, servicer, add) in _SERVICES.items():
            add(type("Servicer", (servicer,), {"Export": self._grpc_export(signal, response)})(), self._grpc)
        grpc_port = self._grpc.add_insecure_port("127.0.0.1:0")
        self._grpc.start()
        self.http_endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.grpc_endpoint = f"http://127.0.0.1:{grpc_port}"

    # ---- what a test says

    def endpoint(self, protocol: str) -> str:
        """Return the endpoint for ``grpc`` or ``http/protobuf``."""
        return self.grpc_endpoint if protocol == "grpc" else self.http_endpoint

    def environ(self, protocol: str) -> dict[str, str]:
        """Return the ``OTEL_*`` variables that send every signal here over ``protocol``."""
        return {
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint(protocol),
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
        }

    def accept(self) -> None:
        """Accept what comes from now on and release whoever hangs."""
        self._behave(_Behaviour())

    def refuse(self, http_status: int = 503, grpc_status: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        """Refuse what comes from now on with the given status of each transport."""
        self._behave(_Behaviour(http_status=http_status, grpc_status=grpc_status))

    def reject(self, number: int, message: str) -> None:
        """Take what comes from now on and answer with a partial success: so many items of each request rejected."""
        self._behave(_Behaviour(rejects=(number, message)))

    def delay(self, seconds: float) -> None:
        """Accept, but only after ``seconds``."""
        self._behave(_Behaviour(delay_s=seconds))

    def hang(self) -> None:
        """Take what comes from now on and never answer."""
        self._behave(_Behaviour(hang=True))

    def demand_header(self, name: str, value: str) -> None:
        """Accept only requests that carry the header; others get 401 or UNAUTHENTICATED."""
        self._behave(_Behaviour(header=(name.lower(), value)))

    def clear(self) -> None:
        """Forget every request received so far."""
        with self._changed:
            self._requests.clear()

    def close(self) -> None:
        """Stop both servers and release whoever hangs."""
        self._behaviour.released.set()
        self._grpc.stop(grace=0)
        self._http.shutdown()
        self._http.server_close()

    # ---- what a test asks

    def requests(self, signal: str | None = None) -> list[Request]:
        """Return the requests so far, of one signal or of all, refused ones included."""
        with self._changed:
            return [item for item in self._requests if signal in (None, item.signal)]

    def spans(self) -> list[Record]:
        """Return every span of every accepted request."""
        return self._records("traces")

    def points(self) -> list[Record]:
        """Return every metric data point of every accepted request."""
        return self._records("metrics")

    def logs(self) -> list[Record]:
        """Return every log record of every accepted request."""
        return self._records("logs")

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 10.0) -> bool:
        """Wait until ``condition`` holds, looking again after each request; return whether it did."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with self._changed:
                self._changed.wait(min(left, 0.05))
        return True

    def _records(self, signal: str) -> list[Record]:
        return [record for item in self.requests(signal) if item.accepted for record in READERS[signal](item.payload)]

    # ---- what the servers call

    def _behave(self, behaviour: _Behaviour) -> None:
        previous, self._behaviour = self._behaviour, behaviour
        previous.released.set()

    def _take(self, signal: str, transport: str, headers: Mapping[str, str], message: Any) -> _Behaviour | None:
        """Record a request; return the behaviour that refuses it, ``None`` when it is accepted."""
        behaviour = self._behaviour
        accepted = not behaviour.hang and behaviour.http_status == 200
        if behaviour.header is not None:
            name, value = behaviour.header
            accepted = headers.get(name) == value
        if behaviour.delay_s:
            behaviour.released.wait(behaviour.delay_s)
        with self._changed:
            self._requests.append(Request(signal, transport, dict(headers), message_to_json(message), accepted))
            self._changed.notify_all()
        if behaviour.hang:
            behaviour.released.wait()
        return None if accepted else behaviour

    def _grpc_export(self, signal: str, response: Any) -> Callable[[Any, Any, grpc.ServicerContext], Any]:
        def export(_servicer: Any, message: Any, context: grpc.ServicerContext) -> Any:
            headers = {key.lower(): str(value) for key, value in context.invocation_metadata()}
            refused_by = self._take(signal, "grpc", headers, message)
            if refused_by is not None:
                demanded = refused_by.header is not None
                status = grpc.StatusCode.UNAUTHENTICATED if demanded else refused_by.grpc_status
                context.abort(status if status is not grpc.StatusCode.OK else grpc.StatusCode.UNAVAILABLE, "refused")
            return self._answer(signal, response)

        return export

    def _answer(self, signal: str, response: Any) -> Any:
        number, message = self._behaviour.rejects
        answer = response()
        if number or message:
            answer.partial_success.error_message = message
            setattr(answer.partial_success, _REJECTED[signal], number)
        return answer


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    receiver: OtlpReceiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a sender that was killed or gave up is what many tests are about."""


class _HttpRequest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        signal = _BY_PATH.get(self.path)
        if signal is None or self.headers.get("Content-Type") != "application/x-protobuf":
            self._answer(404 if signal is None else 415, b"")
            return
        _, request_type, response_type, _, _ = _SERVICES[signal]
        headers = {key.lower(): value for key, value in self.headers.items()}
        refused_by = self.server.receiver._take(signal, "http/protobuf", headers, request_type.FromString(body))
        if refused_by is None:
            self._answer(200, self.server.receiver._answer(signal, response_type).SerializeToString())
        else:
            demanded = refused_by.header is not None
            self._answer(401 if demanded else refused_by.http_status if refused_by.http_status != 200 else 503, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output to the test."""


@contextmanager
def running_receiver() -> Iterator[OtlpReceiver]:
    """Run a receiver for the length of a ``with`` block."""
    receiver = OtlpReceiver()
    try:
        yield receiver
    finally:
        receiver.close()
