"""Checks that what ``programs/send_all_signals.py`` sent arrived at a receiver, complete and correct."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.otlp_decode import Record
from support.programs import every_kind, log_lines

SENDER = Path(__file__).parent / "programs" / "send_all_signals.py"
REMOTE_TRACE, REMOTE_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
INTERNAL, SERVER, CONSUMER = 1, 2, 5
ERROR = 2
# Beginnings of the variables that say where telemetry goes, which run, rank and span this is, or what resource.
_CONFIGURING = (
    *("OTEL_", "NEMO_LENS", "SLURM_", "TORCHELASTIC_", "TRACEPARENT", "TRACESTATE", "BAGGAGE"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "WANDB_", "DEPLOYMENT_ENV", "ENVIRONMENT"),
)
CUMULATIVE = 2


def clean_environ(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without what would configure telemetry, plus ``extra``."""
    kept = {key: value for key, value in os.environ.items() if not key.upper().startswith(_CONFIGURING)}
    return {**kept, **extra}


def send(environ: Mapping[str, str]) -> Record:
    """Run the sender and return what it says it sent."""
    run = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", str(SENDER)],
        env=clean_environ(environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    sent: Record = json.loads(run.stdout)
    assert sent["exporting"]
    return sent


def check_all(sent: Record, spans: Sequence[Record], points: Sequence[Record], logs: Sequence[Record]) -> None:
    """Compare everything that arrived with what was sent."""
    check_spans(sent, spans)
    check_points(sent, points)
    check_logs(sent, logs)


def check_resource(sent: Record, record: Record) -> None:
    """The resource is the one that the process reports, with the caller's, the config's and the detected attributes."""
    resource = record["resource"]
    expected = {
        "service.name": "receiver-test",
        "nemo.run.id": "run-7",
        "nv.dl.rank": 3,
        "team": "größe",
        "process.pid": sent["pid"],
        "service.instance.id": "run-7-rank3",
        "telemetry.sdk.language": "python",
    }
    assert {key: resource.get(key) for key in expected} == expected
    assert resource["host.name"]
    assert resource == sent["resource"]


def check_spans(sent: Record, spans: Sequence[Record]) -> None:
    """Every span arrived once, with parents, kinds, scope, attributes, events, links and status."""
    by_name = {span["name"]: span for span in spans}
    assert sorted(span["name"] for span in spans) == sorted(
        ["job", "train_step", "forward", "continued", "measured", "application span"]
    )
    for span in spans:
        check_resource(sent, span)
        assert span["start"] <= span["end"]
    job, step, forward = by_name["job"], by_name["train_step"], by_name["forward"]
    assert (job["trace_id"], job["span_id"], job["parent_id"]) == (sent["trace_id"], sent["job_id"], "")
    assert (step["trace_id"], step["parent_id"]) == (job["trace_id"], job["span_id"])
    assert (forward["trace_id"], forward["parent_id"]) == (job["trace_id"], step["span_id"])
    assert (job["kind"], step["kind"], forward["kind"]) == (SERVER, CONSUMER, INTERNAL)
    assert (job["scope"], step["scope"]) == ("nemo.lens.helpers", "nemo.lens")
    assert job["attributes"] == {"gpus": 8}
    assert step["attributes"] == {"batch.size": 3}
    assert forward["attributes"] == {"index": 1, "ratio": 0.5, "flags": [True, False], "label": "größe"}
    assert [(event["name"], event["attributes"]) for event in job["events"]] == [("loaded", {"shards": 4})]
    assert [(link["trace_id"], link["span_id"]) for link in job["links"]] == [(REMOTE_TRACE, REMOTE_SPAN)]
    _check_error(forward)
    for span in (job, step):
        assert span["status"] != ERROR
    continued = by_name["continued"]
    assert (continued["trace_id"], continued["parent_id"]) == (REMOTE_TRACE, REMOTE_SPAN)
    measured = by_name["measured"]
    assert (measured["start"], measured["end"]) == (1_700_000_000_123_456_789, 1_700_000_002_500_000_000)
    assert measured["attributes"] == {"source": "launcher"}
    application = by_name["application span"]
    assert (application["scope"], application["scope_version"]) == ("application", "9.9")
    assert application["scope_attributes"] == {"scope.attribute": "kept"}


def _check_error(span: Record) -> None:
    assert (span["status"], span["description"]) == (ERROR, "RuntimeError: loss is not finite")
    assert [event["name"] for event in span["events"]] == ["exception"]
    recorded = span["events"][0]["attributes"]
    assert recorded["exception.type"] == "RuntimeError"
    assert recorded["exception.message"] == "loss is not finite"
    assert "raise RuntimeError" in recorded["exception.stacktrace"]


def check_points(sent: Record, points: Sequence[Record]) -> None:
    """Every instrument arrived with its kind, unit, temporality and value."""
    by_name = {point["name"]: point for point in points if point["scope"] == "nemo.lens"}
    for point in points:
        check_resource(sent, point)
    shape = ("kind", "monotonic", "unit", "value", "attributes")
    expected: dict[str, tuple[Any, ...]] = {
        "steps": ("sum", True, "{step}", 5, {"phase": "train"}),
        "queue": ("sum", False, "1", -2, {}),
        "loss": ("gauge", False, "", 0.25, {}),
        "step.duration": ("histogram", False, "s", 6.0, {}),
    }
    assert {name: tuple(by_name[name][key] for key in shape) for name in expected} == expected
    assert by_name["steps"]["metric_description"] == "Steps done"
    assert by_name["steps"]["temporality"] == CUMULATIVE
    duration = by_name["step.duration"]
    assert (duration["count"], duration["bounds"], duration["bucket_counts"]) == (3, [1.0, 2.0], [1, 1, 1])
    check_kinds(sent, points)


def check_kinds(sent: Record, points: Sequence[Record]) -> None:
    """Each kind of metric arrived as its spec says, with each series once, and tied to the span it was recorded in."""
    for spec in every_kind.SPECS:
        series = [point for point in points if point["name"] == spec.name]
        kind, monotonic, expected = every_kind.EXPECTED[spec.name]
        assert [(point["attributes"], point["value"]) for point in series] == expected, spec.name
        for point in series:
            shape = (point["kind"], point["monotonic"], point["unit"], point["metric_description"])
            assert shape == (kind, monotonic, spec.unit, spec.description)
            assert point["temporality"] == (0 if kind == "gauge" else CUMULATIVE)
            tied = {(exemplar["trace_id"], exemplar["span_id"]) for exemplar in point["exemplars"]}
            assert tied == (set() if spec.is_observable else {(sent["trace_id"], sent["job_id"])}), spec.name
    (duration,) = [point for point in points if point["name"] == "kinds.step.duration"]
    assert (duration["count"], duration["bounds"]) == (len(every_kind.DURATIONS_S), list(every_kind.BUCKETS))
    assert [exemplar["value"] for exemplar in duration["exemplars"]] == list(every_kind.DURATIONS_S)


def check_logs(sent: Record, logs: Sequence[Record]) -> None:
    """Each log record arrived once, with body, severity, attributes and the span it was written in."""
    check_lines(sent, logs)
    mine = [record for record in logs if record["scope"] == "receivers.log"]
    assert len(mine) == 1
    record = mine[0]
    check_resource(sent, record)
    assert (record["body"], record["severity"], record["severity_text"]) == ("checkpoint saved", 13, "WARN")
    assert record["attributes"] == {"path": "/ckpt/3"}
    assert (record["trace_id"], record["span_id"]) == (sent["trace_id"], sent["job_id"])
    assert record["time"] == 1_700_000_000_123_456_789


def check_lines(sent: Record, logs: Sequence[Record]) -> None:
    """Each line of ``logging`` arrived once, with its place in the code, fields, exception, and the ids of its span."""
    lines = {record["body"]: record for record in logs if record["scope"] == log_lines.NAME}
    assert len([record for record in logs if record["scope"] == log_lines.NAME]) == len(lines)
    assert lines.keys() == log_lines.EXPECTED.keys()
    for body, (severity, text, in_span, attributes) in log_lines.EXPECTED.items():
        record = lines[body]
        check_resource(sent, record)
        assert (record["severity"], record["severity_text"]) == (severity, text)
        ids = (sent["trace_id"], sent["job_id"]) if in_span else ("", "")
        assert (record["trace_id"], record["span_id"]) == ids
        found = dict(record["attributes"])
        assert found.pop("code.file.path") == str(SENDER.parent / "log_lines.py")
        assert found.pop("code.function.name") in {"log_inside_a_span", "log_outside"}
        assert found.pop("code.line.number") > 0
        assert ("raise ValueError" in found.pop("exception.stacktrace", "")) == ("exception.type" in attributes)
        assert found == attributes
