"""Tracers and instruments obtained before setup: what goes through them afterwards is exported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import sys
from nemo_lens.api import NemoLensConfig, get_meter, get_tracer, setup_telemetry

tracer, meter = get_tracer("early.tracer", "1"), get_meter("early.meter", "2")
kinds = ("counter", "up_down_counter", "histogram", "gauge")
instruments = {kind: getattr(meter, f"create_{kind}")(kind) for kind in kinds}
observed = meter.create_observable_gauge("observed", callbacks=[lambda options: [Observation(7)]])
instruments["counter"].add(100)
tracer.start_span("lost").end()

from opentelemetry.metrics import Observation
config = NemoLensConfig(enabled=True, exporter="file", file_path=sys.argv[1], run_id="r")
for run in ("first", "second"):
    with setup_telemetry(config, resource_attributes={"nv.dl.rank": 0}):
        instruments["counter"].add(1, {"run": run})
        instruments["up_down_counter"].add(-2, {"run": run})
        instruments["histogram"].record(0.5, {"run": run})
        instruments["gauge"].set(4, {"run": run})
        with tracer.start_as_current_span(f"{run}.outer"):
            tracer.start_span(f"{run}.inner").end()
    tracer.start_span("between").end()
"""


def _lines(folder: Path, signal: str) -> list[Any]:
    return [json.loads(line) for path in folder.glob(f"{signal}*") for line in path.read_text().splitlines()]


def test_what_was_obtained_before_setup_reaches_every_run(tmp_path: Path) -> None:
    """Spans and measurements of early tracers and instruments are exported under their scope, in the second run too."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path / "{signal}-{pid}.jsonl")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    scopes = [
        scope for line in _lines(tmp_path, "traces") for part in line["resourceSpans"] for scope in part["scopeSpans"]
    ]
    spans = {span["name"]: span for scope in scopes for span in scope["spans"]}
    assert set(spans) == {f"{run}.{name}" for run in ("first", "second") for name in ("outer", "inner")}
    assert spans["first.inner"]["parentSpanId"] == spans["first.outer"]["spanId"]
    assert {(scope["scope"]["name"], scope["scope"]["version"]) for scope in scopes} == {("early.tracer", "1")}

    parts = [
        scope
        for line in _lines(tmp_path, "metrics")
        for part in line["resourceMetrics"]
        for scope in part["scopeMetrics"]
        if scope["scope"]["name"] != "nemo.lens.sdk"  # which says how the exporting went
    ]
    assert {(scope["scope"]["name"], scope["scope"]["version"]) for scope in parts} == {("early.meter", "2")}
    metrics = {metric["name"] for scope in parts for metric in scope["metrics"]}
    assert metrics == {"counter", "up_down_counter", "histogram", "gauge", "observed"}
    text = json.dumps(parts)
    assert '"first"' in text
    assert '"second"' in text
    counted = [
        int(point["asInt"])
        for scope in parts
        for metric in scope["metrics"]
        if metric["name"] == "counter"
        for point in metric["sum"]["dataPoints"]
    ]
    assert set(counted) == {1}, "what was added before setup belongs to no run"
