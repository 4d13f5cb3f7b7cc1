"""Measures what a real OpenTelemetry Collector spends on the requests of ranks: processor time and memory."""

from __future__ import annotations

import http.client
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scale import packing
from scale.receiver import discarding_sink

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
# What is sent of each: some seconds of a core.
_SPANS, _REQUESTS = 300_000, 4000
_ROUNDS = 3


def measure(collector: Path, captured: Mapping[str, list[bytes]]) -> dict[str, Any]:
    """Return microseconds of processor time a request, by the spans or records in it, and the peak memory.

    It listens on OTLP/HTTP, limits its memory, batches, and sends on over OTLP/HTTP with gzip to a server that confirms
    at once: the configuration of a collector on a node.

    Args:
        collector: the program; it needs the otlp receiver, the memory_limiter and batch processors and the otlphttp
            exporter.
        captured: requests of each signal, as a rank sent them.
    """
    with _running(collector) as (process, port):
        by_batch: dict[str, float] = {}
        for batch in (1, 8, 64, 512):
            requests = packing.requests("traces", captured["traces"], batch)
            by_batch[str(batch)] = _spent(process, port, "traces", requests, min(_REQUESTS, _SPANS // batch))
        spent = {
            "traces": by_batch,
            "metrics": {"1": _spent(process, port, "metrics", captured["metrics"], _REQUESTS)},
            "logs": {"1": _spent(process, port, "logs", packing.requests("logs", captured["logs"], 1), _REQUESTS)},
        }
        peak = next(line for line in Path(f"/proc/{process}/status").read_text().splitlines() if "VmHWM" in line)
    return {"us per request": spent, "peak MiB": round(int(peak.split()[1]) / 1024)}


def _spent(process: int, port: int, signal: str, requests: list[bytes], number: int) -> float:
    rounds = []
    for _ in range(_ROUNDS):
        before = _processor_s(process)
        _send(port, signal, requests, number)
        time.sleep(0.5)  # what is still batched belongs to it
        rounds.append((_processor_s(process) - before) / number * 1e6)
    return round(statistics.median(rounds), 1)


def _send(port: int, signal: str, requests: list[bytes], number: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for turn in range(number):
        connection.request(
            "POST", f"/v1/{signal}", requests[turn % len(requests)], {"Content-Type": "application/x-protobuf"}
        )
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the collector refused {signal}: {answer.status}")
    connection.close()


def _processor_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


@contextmanager
def _running(collector: Path) -> Iterator[tuple[int, int]]:
    """Run the collector on one core; give its process id and its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with discarding_sink() as sink, tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "collector.json")
        config.write_text(json.dumps(_config(port, sink)), encoding="utf-8")
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                [collector, "--config", config], stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"}
            )
        try:
            deadline = time.monotonic() + 15
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the collector did not start:\n{Path(folder, 'log').read_text()[-4000:]}")
                time.sleep(0.05)
            yield process.pid, port
        finally:
            process.terminate()
            process.wait(timeout=15)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _config(port: int, sink: int) -> dict[str, Any]:
    pipeline = {"receivers": ["otlp"], "processors": ["memory_limiter", "batch"], "exporters": ["otlphttp"]}
    return {  # the Collector reads YAML, and JSON is YAML
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "processors": {"memory_limiter": {"check_interval": "1s", "limit_mib": 512}, "batch": {}},
        "exporters": {"otlphttp": {"endpoint": f"http://127.0.0.1:{sink}", "compression": "gzip"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
            "pipelines": dict.fromkeys(("traces", "metrics", "logs"), pipeline),
        },
    }
