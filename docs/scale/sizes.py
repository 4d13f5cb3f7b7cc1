"""Measures what the telemetry of one rank weighs, on ranks that really run and deliver to a receiver on loopback."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scale import packing
from scale.receiver import CountingProxy, Received, grpc_receiver, http_receiver
from scale.workload import ENVIRONMENT, PRESETS, Job, spans_per_step

# Of one export request: sizes between these are interpolated.
BATCHES = (1, 8, 64, 512)
FULL = BATCHES[-1]
# Levels of compression of the HTTP exporter and of the file exporter.
HTTP_LEVEL, FILE_LEVEL = 9, 6
_RANK = Path(__file__).with_name("rank.py")
_TIMEOUT_S = 120


def measure() -> dict[str, Any]:
    """Return all sizes, in bytes."""
    sizes: dict[str, Any] = {"traces": {}}
    # The preset with the fewest spans a step comes last: it takes the most steps, and so has the most log records.
    for preset in reversed(PRESETS):
        with tempfile.TemporaryDirectory() as folder, http_receiver() as (port, received):
            files = {
                "NEMO_LENS_EXPORTER": "file",
                "NEMO_LENS_FILE_PATH": f"{folder}/{{signal}}.jsonl",
            }
            steps = -(-2 * FULL // int(spans_per_step(Job(), preset)))
            _run_rank(preset, steps, _over("http/protobuf", port, FULL, "gzip"), files)
            _check(preset, steps, received)
            lines = {path.stem: path.read_bytes().splitlines(keepends=True) for path in Path(folder).iterdir()}
        sizes["traces"][preset] = dict(_curves("traces", received.bodies["traces"], lines["traces"]))
    sizes["logs"] = dict(_curves("logs", received.bodies["logs"], lines["logs"]))
    sizes["metrics"] = _of_metrics(received.bodies["metrics"], lines["metrics"])
    sizes["resource"] = packing.resource(received.bodies["traces"][0])
    sizes["overhead"] = {"http": _overhead("http/protobuf"), "grpc": _overhead("grpc")}
    sizes["connections"] = sizes["overhead"]["http"].pop("connections")
    sizes["overhead"]["grpc"].pop("connections")
    return sizes


def capture() -> dict[str, list[bytes]]:
    """Return the requests of a rank with the default preset, by signal."""
    with http_receiver() as (port, received):
        _run_rank("default", 800, _over("http/protobuf", port, FULL, "none"))
    return received.bodies


def provenance() -> dict[str, str]:
    """Return the versions that decide what is sent."""
    names = ("nemo-lens-sdk", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http", "grpcio")
    return {name: version(name) for name in names} | {"python": ".".join(map(str, sys.version_info[:2]))}


def differences(kept: Mapping[str, Any], now: Mapping[str, Any], tolerance: float, path: str = "") -> Iterator[str]:
    """Yield a line for each kept figure that the measured one is not within ``tolerance`` of."""
    for key in sorted({*kept, *now}):
        place, old, new = f"{path}{key}", kept.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, tolerance, f"{place}.")
        elif old is None or new is None or abs(new - old) > tolerance * old:
            yield f"{place}: kept {old}, measured {new}"


def _over(protocol: str, port: int, batch: int, compression: str) -> dict[str, str]:
    return {
        "NEMO_LENS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": str(batch),
    }


def _run_rank(preset: str, steps: int, *settings: Mapping[str, str]) -> None:
    foreign = ("NEMO_LENS_", "OTEL_", "SLURM_", "TORCHELASTIC_", "K8S_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(foreign)} | ENVIRONMENT
    paths = [str(_RANK.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Nothing is lost, and nothing is sent before a batch is full.
    environment |= {
        "NEMO_LENS_SPAN_GROUPS": preset,
        "OTEL_BSP_MAX_QUEUE_SIZE": "8192",
        "OTEL_BSP_SCHEDULE_DELAY": "3600000",
        "OTEL_BLRP_SCHEDULE_DELAY": "3600000",
        "OTEL_METRIC_EXPORT_INTERVAL": "3600000",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    done = subprocess.run(
        [sys.executable, str(_RANK), str(steps), *map(json.dumps, settings)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the measured rank failed:\n{done.stderr[-4000:]}")


def _check(preset: str, steps: int, received: Received) -> None:
    """Compare what was received with what the formulas, and the compression that is reckoned with, say."""
    job = Job()
    checkpoints = (steps // job.checkpoint_interval) * 4
    expected = steps * (spans_per_step(job, preset) - 4 / job.checkpoint_interval) + checkpoints
    spans = sum(packing.count("traces", body) for body in received.bodies["traces"])
    if spans != round(expected):
        raise RuntimeError(f"preset {preset}: {spans} spans in {steps} steps, {expected:.0f} by the formulas")
    for body, sent in zip(received.bodies["traces"], received.sent["traces"], strict=True):
        ours = len(gzip.compress(body, HTTP_LEVEL))
        if abs(ours - sent) > 0.02 * sent:
            raise RuntimeError(f"a request of {sent} bytes as it was sent is {ours} bytes by our compression")


def _curves(signal: str, bodies: list[bytes], lines: list[bytes]) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield, by way of delivery, the mean size of a request or line by the number of spans or records in it."""
    packed = {batch: packing.requests(signal, bodies, batch) for batch in BATCHES}
    written = {batch: packing.lines(signal, lines, batch) for batch in BATCHES}
    for name, sample, level in (("plain", packed, 0), ("gzip", packed, HTTP_LEVEL)):
        yield name, {str(batch): _mean(sample[batch], level) for batch in BATCHES if sample[batch]}
    for name, sample, level in (("file", written, 0), ("file.gz", written, FILE_LEVEL)):
        yield name, {str(batch): _mean(sample[batch], level) for batch in BATCHES if sample[batch]}


def _of_metrics(bodies: list[bytes], lines: list[bytes]) -> dict[str, Any]:
    return {
        **packing.points(bodies[-1]),
        # A request holds all points of a rank, so there is one size; the last one also counts the exports before it.
        "ways": {
            "plain": {"1": _mean(bodies[-1:], 0)},
            "gzip": {"1": _mean(bodies[-1:], HTTP_LEVEL)},
            "file": {"1": _mean(lines[-1:], 0)},
            "file.gz": {"1": _mean(lines[-1:], FILE_LEVEL)},
        },
    }


def _mean(messages: list[bytes], level: int) -> int:
    return round(sum(len(gzip.compress(text, level) if level else text) for text in messages) / len(messages))


def _overhead(protocol: str) -> dict[str, int]:
    """Return what a request costs beside its body: headers, framing, its part of opening connections."""
    with http_receiver() if protocol != "grpc" else grpc_receiver() as (port, received):
        proxy = CountingProxy(port)
        _run_rank("default", 40, _over(protocol, proxy.port, 8, "none"))
        proxy.close()
    requests = sum(len(sent) for sent in received.sent.values())
    return {
        "request": round((proxy.upstream - sum(map(sum, received.sent.values()))) / requests),
        "response": round(proxy.downstream / requests),
        "connections": proxy.connections,
    }
