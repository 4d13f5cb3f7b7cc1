"""Traces, metrics and logs at the receivers of a third party."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.all_signals import SENDER, check_all, clean_environ
from support.network import own_network
from support.otlp_decode import READERS, Record

pytest.importorskip("oteltest", reason="the third-party receiver is not installed: run `nox -s receivers`")

_SINK = SENDER.parent / "third_party_sink.py"
_PORTS = {"grpc": 4317, "http/protobuf": 4318}  # the sinks' defaults; the network namespace is ours alone


@pytest.mark.parametrize(
    ("protocol", "compression"),
    [("grpc", "none"), ("grpc", "gzip"), ("http/protobuf", "none")],  # the HTTP sink reads no gzip
)
def test_every_signal_arrives_complete(protocol: str, compression: str, tmp_path: Path) -> None:
    """All three signals arrive once over the protocol asked for, resource, scope, links, events and status included."""
    output = tmp_path / "received.json"
    run = subprocess.run(
        [*own_network("the sinks bind"), sys.executable, str(_SINK), str(output), sys.executable, str(SENDER)],
        env=clean_environ(
            {
                "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{_PORTS[protocol]}",
                "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
                "PYTHONPATH": str(SENDER.parents[2]),
            }
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    received = json.loads(output.read_text(encoding="utf-8"))
    assert {item["transport"] for item in received["requests"]} == {protocol}

    def records(signal: str) -> list[Record]:
        payloads = [item["payload"] for item in received["requests"] if item["signal"] == signal]
        return [record for payload in payloads for record in READERS[signal](payload)]

    check_all(json.loads(received["sent"]), records("traces"), records("metrics"), records("logs"))
