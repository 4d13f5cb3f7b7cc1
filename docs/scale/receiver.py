"""A receiver on loopback that keeps what came in over OTLP, and a proxy before it that counts all bytes of TCP."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

SIGNALS = ("traces", "metrics", "logs")
_GRPC_SERVICES = {
    f"/opentelemetry.proto.collector.{kind}.v1.{kind.capitalize()}Service/Export": signal
    for kind, signal in (("trace", "traces"), ("metrics", "metrics"), ("logs", "logs"))
}


@dataclass
class Received:
    """The requests of each signal, decompressed, with the bytes of their bodies as they were sent."""

    bodies: dict[str, list[bytes]] = field(default_factory=lambda: {signal: [] for signal in SIGNALS})
    sent: dict[str, list[int]] = field(default_factory=lambda: {signal: [] for signal in SIGNALS})


@contextmanager
def http_receiver() -> Iterator[tuple[int, Received]]:
    """Run a receiver of OTLP/HTTP; give its port and what it receives."""
    received = Received()

    class Request(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            signal = self.path.rpartition("/")[2]
            received.sent[signal].append(len(body))
            compressed = self.headers.get("Content-Encoding") == "gzip"
            received.bodies[signal].append(gzip.decompress(body) if compressed else body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the output to the figures."""

    with _server(ThreadingHTTPServer(("127.0.0.1", 0), Request)) as port:
        yield port, received


@contextmanager
def grpc_receiver() -> Iterator[tuple[int, Received]]:
    """Run a receiver of OTLP/gRPC; give its port and what it receives."""
    received = Received()

    class Services(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
            signal = _GRPC_SERVICES[handler_call_details.method]

            def export(body: bytes, context: grpc.ServicerContext) -> bytes:
                received.sent[signal].append(len(body))
                received.bodies[signal].append(body)
                return b""

            return grpc.unary_unary_rpc_method_handler(export)

    server = grpc.server(ThreadPoolExecutor(max_workers=4), handlers=[Services()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port, received
    finally:
        server.stop(grace=0).wait()


class CountingProxy:
    """Passes TCP on to a port of loopback and counts the bytes each way and the connections."""

    def __init__(self, target: int) -> None:
        self.upstream = self.downstream = self.connections = 0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self.connections += 1
                for source, sink, name in ((client, server, "upstream"), (server, client, "downstream")):
                    threading.Thread(target=self._pass_on, args=(source, sink, name), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                setattr(self, name, getattr(self, name) + len(data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def discarding_sink() -> Iterator[int]:
    """Run a server that confirms every POST and forgets it; give its port."""

    class Confirm(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the output to the figures."""

    with _server(ThreadingHTTPServer(("127.0.0.1", 0), Confirm)) as port:
        yield port


@contextmanager
def _server(server: ThreadingHTTPServer) -> Iterator[int]:
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
