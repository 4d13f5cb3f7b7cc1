"""Measure what telemetry costs a process beside the calls that the benchmarks hold: start, memory, fork, exit, export.

    python docs/measure_cost.py

Each figure comes from processes of its own, which deliver to a server on loopback that confirms at once. Times are the
best of some: what a neighbour on the machine takes is no part of them. The calls themselves are measured by
``nox -s bench``, side by side with what they are compared to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

from reference_pages.markdown import table_head, table_row
from scale.receiver import discarding_sink

_ROUNDS = 5
_START = """
import json, os, sys, time
start = time.perf_counter()
"""
_SET_UP = """
from nemo_lens.api import managed_span, set_enabled_span_groups, setup_telemetry
handle = setup_telemetry(resource_attributes={"nv.dl.rank": 0})
set_enabled_span_groups(("on",))
values = {f"key_{n}": (n if n % 2 else f"value {n}") for n in range(int(os.environ.get("ATTRIBUTES", "0")))}
def record(spans):
    for _ in range(spans):
        with managed_span("on", "step", attributes=values):
            pass
"""
_SAY_MS = """
print(json.dumps((time.perf_counter() - start) * 1000))
"""
_IMPORT = f"""{_START}
import nemo_lens.api as api
api.managed_span, api.trace_fn, api.SpanRegistry, api.is_span_group_enabled
{_SAY_MS}"""
_SET_UP_ALONE = f"""{_START}{_SET_UP}{_SAY_MS}"""
_MEMORY = f"""{_START}
def resident():
    return int(next(line for line in open("/proc/self/status") if "VmRSS" in line).split()[1]) / 1024
before = resident()
{_SET_UP}
record(600)
handle.force_flush()
print(json.dumps(resident() - before))
"""
_WAITING = f"""{_START}{_SET_UP}
import tracemalloc
record(10)
tracemalloc.start()
before = tracemalloc.get_traced_memory()[0]
record(1000)
print(json.dumps((tracemalloc.get_traced_memory()[0] - before) / 1000), flush=True)
os._exit(0)
"""
_SHUTDOWN = f"""{_START}{_SET_UP}
record(512)
handle.force_flush()  # the connection is open
record(int(os.environ["WAITING"]))
start = time.perf_counter()
handle.shutdown()
{_SAY_MS}"""
_FORK = f"""{_START}
if os.environ["NEMO_LENS_ENABLED"] == "1":
    {_SET_UP.strip().replace(chr(10), chr(10) + "    ")}
    record(600)
    handle.force_flush()
best = 1e9
for _ in range(20):
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    best = min(best, time.perf_counter() - start)
print(json.dumps(best * 1000), flush=True)
os._exit(0)
"""
# Processor time of recording and delivering, less that of recording alone.
_EXPORT = f"""{_START}{_SET_UP}
record(2000)
handle.force_flush()
start = time.process_time()
record(8000)
recorded = time.process_time()
handle.force_flush()
delivered = time.process_time()
print(json.dumps((delivered - recorded) / 8000 * 1e6), flush=True)
os._exit(0)
"""


class Figure(NamedTuple):
    """A figure: what it is, its unit, the program that prints it, the variables it runs with."""

    what: str
    unit: str
    program: str
    variables: dict[str, str]


_QUEUED = {"OTEL_BSP_MAX_QUEUE_SIZE": "16384", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16384"}
_LATE = {"OTEL_BSP_SCHEDULE_DELAY": "3600000"}
_LARGE = {"OTEL_BSP_MAX_QUEUE_SIZE": "16384", **_LATE, "ATTRIBUTES": "2"}
FIGURES = (
    Figure("importing the API and four names of the hot path", "ms", _IMPORT, {}),
    Figure("`setup_telemetry`, off", "ms", _SET_UP_ALONE, {"NEMO_LENS_ENABLED": "0"}),
    Figure("`setup_telemetry`, on, `file`", "ms", _SET_UP_ALONE, {"NEMO_LENS_EXPORTER": "file"}),
    Figure("`setup_telemetry`, on, http/protobuf", "ms", _SET_UP_ALONE, {}),
    Figure("`setup_telemetry`, on, grpc", "ms", _SET_UP_ALONE, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}),
    Figure("resident memory after 600 spans, http/protobuf", "MiB", _MEMORY, {}),
    Figure("a waiting span, no attributes", "bytes", _WAITING, {**_QUEUED, **_LATE}),
    Figure("a waiting span, two attributes", "bytes", _WAITING, {**_QUEUED, **_LATE, "ATTRIBUTES": "2"}),
    Figure("a waiting span, eight attributes", "bytes", _WAITING, {**_QUEUED, **_LATE, "ATTRIBUTES": "8"}),
    Figure("delivering a span with two attributes, in the export thread", "us", _EXPORT, _LARGE),
    Figure(
        "the same with gzip", "us", _EXPORT, {**_LARGE, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
    ),
    Figure("a fork, and waiting for the child, off", "ms", _FORK, {"NEMO_LENS_ENABLED": "0"}),
    Figure("a fork, and waiting for the child, on", "ms", _FORK, {}),
    Figure("`shutdown`, nothing waiting", "ms", _SHUTDOWN, {"WAITING": "0"}),
    Figure("`shutdown`, 400 spans waiting", "ms", _SHUTDOWN, {"WAITING": "400"}),
)  # fmt: skip


def measure(figure: Figure, port: int, rounds: int = _ROUNDS) -> float:
    """Return a figure, the least of ``rounds`` processes."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NEMO_LENS_", "OTEL_"))}
    environment |= {
        "NEMO_LENS_ENABLED": "1",
        "NEMO_LENS_METRICS_ENABLED": "0",
        "NEMO_LENS_SPAN_GROUPS": "",
        "NEMO_LENS_FILE_PATH": os.devnull,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        **figure.variables,
    }
    found = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", figure.program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{figure.what}:\n{done.stderr}")
        found.append(float(done.stdout))
    return min(found)


def row(figure: Figure, value: float) -> str:
    """Return a row of the page's table: the figure in two digits, bytes to the next ten."""
    text = f"{value:.2g}" if value < 10 else f"{round(value, -1 if figure.unit == 'bytes' else 0):.0f}"
    return table_row(figure.what, f"{text} {figure.unit}")


def main() -> int:
    """Measure everything and print the table."""
    sys.stdout.write("\n".join(table_head("what", "figure")) + "\n")
    with discarding_sink() as port:
        for figure in FIGURES:
            sys.stdout.write(row(figure, measure(figure, port)) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
