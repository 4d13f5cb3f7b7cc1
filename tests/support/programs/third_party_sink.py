"""Runs a command beside the gRPC and HTTP sinks of the third-party package ``oteltest``; writes what they received.

The sinks bind every interface, so this program runs in a network namespace of its own.

usage: third_party_sink.py OUTPUT COMMAND...
"""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from oteltest.sink import GrpcSink, HttpSink
from oteltest.sink.handler import RequestHandler

from support.otlp_decode import message_to_json


class Recorder(RequestHandler):
    """Keep each request, with the transport it came over."""

    def __init__(self, transport: str, requests: list[dict[str, Any]]) -> None:
        self._transport = transport
        self._requests = requests

    def _keep(self, signal: str, request: Any) -> None:
        self._requests.append({"transport": self._transport, "signal": signal, "payload": message_to_json(request)})

    def handle_trace(self, request: Any, headers: Any) -> None:
        self._keep("traces", request)

    def handle_metrics(self, request: Any, headers: Any) -> None:
        self._keep("metrics", request)

    def handle_logs(self, request: Any, headers: Any) -> None:
        self._keep("logs", request)


def main(output: str, *command: str) -> int:
    """Return the command's exit status."""
    requests: list[dict[str, Any]] = []
    logger = logging.getLogger("sink")
    grpc_sink = GrpcSink(Recorder("grpc", requests), logger)
    http_sink = HttpSink(Recorder("http/protobuf", requests), logger)
    grpc_sink.start()
    http_sink.start()
    for port in (grpc_sink.port, http_sink.port):
        _wait_until_listening(port)
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    Path(output).write_text(json.dumps({"sent": run.stdout, "requests": requests}), encoding="utf-8")
    grpc_sink.stop()
    threading.Thread(target=http_sink.stop, daemon=True).start()
    return run.returncode


def _wait_until_listening(port: int) -> None:
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"the sink does not listen on port {port}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
