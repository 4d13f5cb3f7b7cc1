"""The real OpenTelemetry Collector, run on free loopback ports.

It forwards what it received as OTLP JSON over HTTP to a small server in the test, which is how a test sees what a
Collector made of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.otlp_decode import READERS, Record
from support.peer_programs import free_port, peer_binary, running_peer, wait_for


class Collector:
    """A running Collector: where it listens, and what it forwarded."""

    def __init__(self, grpc_port: int, http_port: int, replay: ReplayServer) -> None:
        self.grpc_endpoint = f"http://127.0.0.1:{grpc_port}"
        self.http_endpoint = f"http://127.0.0.1:{http_port}"
        self._replay = replay

    def environ(self, protocol: str) -> dict[str, str]:
        """Return the ``OTEL_*`` variables that send every signal to the Collector over ``protocol``."""
        return {
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.grpc_endpoint if protocol == "grpc" else self.http_endpoint,
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
        }

    def spans(self) -> list[Record]:
        """Return every span that the Collector forwarded."""
        return self._replay.records("traces")

    def points(self) -> list[Record]:
        """Return every metric data point that the Collector forwarded."""
        return self._replay.records("metrics")

    def logs(self) -> list[Record]:
        """Return every log record that the Collector forwarded."""
        return self._replay.records("logs")

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 10.0) -> bool:
        """Wait until ``condition`` holds; return whether it did."""
        return wait_for(condition, timeout_s)

    def clear(self) -> None:
        """Forget what was forwarded so far."""
        self._replay.received.clear()


@contextmanager
def running_collector(folder: Path) -> Iterator[Collector]:
    """Run the Collector with its configuration and log in ``folder``.

    Raises:
        PeerUnavailableError: It has to be built and a package cannot be had.
    """
    binary = peer_binary("otelcol")
    grpc_port, http_port = free_port(), free_port()
    config = folder / "collector.json"
    with replay_server() as replay:
        config.write_text(json.dumps(_config(grpc_port, http_port, replay)), encoding="utf-8")
        with running_peer([binary, "--config", config], (grpc_port, http_port), folder / "collector.log"):
            yield Collector(grpc_port, http_port, replay)


@contextmanager
def replay_server() -> Iterator[ReplayServer]:
    """Run a server of the test to which a Collector forwards what it received."""
    replay = ReplayServer()
    threading.Thread(target=replay.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield replay
    finally:
        replay.shutdown()
        replay.server_close()


def _config(grpc_port: int, http_port: int, replay: ReplayServer) -> dict[str, Any]:
    protocols = {"grpc": {"endpoint": f"127.0.0.1:{grpc_port}"}, "http": {"endpoint": f"127.0.0.1:{http_port}"}}
    pipeline = {"receivers": ["otlp"], "exporters": ["otlphttp/replay"]}
    return {  # the Collector reads YAML, and JSON is YAML
        "receivers": {"otlp": {"protocols": protocols}},
        "exporters": {"otlphttp/replay": replay.exporter},
        "service": {
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
            "pipelines": {"traces": pipeline, "metrics": pipeline, "logs": pipeline},
        },
    }


class ReplayServer(ThreadingHTTPServer):
    """Keeps the OTLP JSON that a Collector posts to it, by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ReplayRequest)
        self.received: list[tuple[str, Record]] = []

    @property
    def exporter(self) -> dict[str, Any]:
        """The settings of the ``otlphttp`` exporter that forwards here."""
        return {
            "endpoint": f"http://127.0.0.1:{self.server_address[1]}",
            "encoding": "json",
            "compression": "none",
            "sending_queue": {"enabled": False},
            "retry_on_failure": {"enabled": False},
        }

    def records(self, signal: str) -> list[Record]:
        """Return every record of a signal that was forwarded."""
        return [
            record
            for path, payload in list(self.received)
            if path == f"/v1/{signal}"
            for record in READERS[signal](payload)
        ]


class _ReplayRequest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ReplayServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, json.loads(body)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output to the test."""
