"""Metrics of OTLP JSON lines files as counter tracks of ``nemo-lens timeline``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nemo_lens.sdk.cli import main
from nemo_lens.sdk.cli._otlp_metrics import MetricPoint
from nemo_lens.sdk.cli._otlp_reader import OtlpReader
from nemo_lens.sdk.cli._otlp_spans import Span

SECOND = 1_000_000_000
BASE = 1_700_000_000 * SECOND
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def resource(rank: int = 0) -> dict[str, Any]:
    return {"attributes": [{"key": "nv.dl.rank", "value": {"intValue": str(rank)}}]}


def point(seconds: float, **fields: Any) -> dict[str, Any]:
    """Return a data point read ``seconds`` into the run, which has counted since its beginning."""
    return {"startTimeUnixNano": str(BASE), "timeUnixNano": str(BASE + round(seconds * SECOND)), **fields}


def metrics_line(*metrics: dict[str, Any], rank: int = 0, scope: str = "app") -> str:
    group = {"scope": {"name": scope}, "metrics": list(metrics)}
    return json.dumps({"resourceMetrics": [{"resource": resource(rank), "scopeMetrics": [group]}]})


def span_line(rank: int = 0) -> str:
    span = {
        "traceId": TRACE,
        "spanId": f"{rank + 1:016x}",
        "name": "run",
        "startTimeUnixNano": str(BASE),
        "endTimeUnixNano": str(BASE + 10 * SECOND),
    }
    return json.dumps({"resourceSpans": [{"resource": resource(rank), "scopeSpans": [{"spans": [span]}]}]})


def cumulative(name: str, kind: str, *points: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields, kind: {"dataPoints": list(points), "aggregationTemporality": 2}}


def delta(name: str, kind: str, *points: dict[str, Any], **fields: Any) -> dict[str, Any]:
    made = cumulative(name, kind, *points, **fields)
    made[kind]["aggregationTemporality"] = "AGGREGATION_TEMPORALITY_DELTA"
    return made


def read(tmp_path: Path, *lines: str) -> tuple[list[MetricPoint], list[str], OtlpReader]:
    """Return the points of a file of these lines, what was reported, and the reader."""
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    reports: list[str] = []
    reader = OtlpReader(reports.append)
    points = [item for item in reader.read_all([file]) if isinstance(item, MetricPoint)]
    return points, [text.removeprefix(f"{file}:") for text in reports], reader


def drawn(tmp_path: Path, *lines: str) -> list[dict[str, Any]]:
    """Return the events that ``timeline`` makes of metrics, in order, with ``ts`` in seconds into the run."""
    file, out = tmp_path / "in.jsonl", tmp_path / "out.json"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert main(["timeline", str(file), "-o", str(out)]) == 0
    trace = json.loads(out.read_text(encoding="utf-8"))
    return [
        {**event, "ts": (event["ts"] * 1000 + trace["baseTimeNanoseconds"] - BASE) / SECOND}
        for event in trace["traceEvents"]
        if event.get("cat") == "metric"
    ]


def track(events: list[dict[str, Any]], name: str) -> list[tuple[float, dict[str, Any]]]:
    """Return time and arguments of the events of one name."""
    return [(event["ts"], event["args"]) for event in events if event["name"] == name]


@pytest.mark.parametrize(
    ("kind", "fields", "value", "measurements"),
    [
        ("gauge", {"asInt": "7"}, 7, 0),
        ("gauge", {"asInt": 7}, 7, 0),
        ("gauge", {"asDouble": 1.5}, 1.5, 0),
        ("gauge", {"asDouble": "-Infinity"}, float("-inf"), 0),
        ("sum", {"asInt": str(-(1 << 63))}, -(1 << 63), 0),
        ("histogram", {"count": "4", "sum": 2.0, "bucketCounts": ["4"]}, 2.0, 4),
        ("histogram", {"count": 4, "sum": "2.0"}, 2.0, 4),
        ("histogram", {"count": "4"}, None, 4),
        ("exponentialHistogram", {"count": "4", "sum": 2.0, "scale": 20, "zeroCount": "0"}, 2.0, 4),
        ("summary", {"count": "4", "sum": 2.0, "quantileValues": [{"quantile": 0.5, "value": 1.0}]}, 2.0, 4),
    ],
)
def test_every_kind_of_metric_is_read(
    kind: str, fields: dict[str, Any], value: float | None, measurements: int, tmp_path: Path
) -> None:
    """Values of any kind and spelling of the protocol become numbers, with unit, times, attributes and their origin."""
    attributes = [{"key": "stage", "value": {"stringValue": "warmup"}}]
    metric = {"name": "m", "unit": "s", kind: {"dataPoints": [point(3, attributes=attributes, **fields)]}}
    points, reports, reader = read(tmp_path, metrics_line(metric, rank=5))
    assert points == [
        MetricPoint(
            "m",
            "s",
            kind,
            False,
            BASE,
            BASE + 3 * SECOND,
            value,
            measurements,
            {"stage": "warmup"},
            {"nv.dl.rank": 5},
            "app",
        )
    ]
    assert (reports, reader.points, reader.skipped_lines) == ([], 1, {})


def test_not_a_number_is_read_as_such(tmp_path: Path) -> None:
    """NaN is a value, spelled as text."""
    (read_point,), _, _ = read(tmp_path, metrics_line(cumulative("m", "gauge", point(1, asDouble="NaN"))))
    assert read_point.value != read_point.value


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"asInt": "x"}, "metric 'bad': asInt is not an integer: 'x'"),
        ({"asInt": str(1 << 63)}, f"metric 'bad': asInt is not an integer: '{1 << 63}'"),
        ({"asDouble": {}}, "metric 'bad': asDouble is '{}'"),
        ({}, "metric 'bad': neither asInt nor asDouble is there"),
        ({"asInt": "1", "timeUnixNano": []}, "metric 'bad': timeUnixNano is not an integer: '[]'"),
        ({"asInt": "1", "attributes": [{"key": 5}]}, "metric 'bad': attributes.key is not a string"),
    ],
)
def test_a_broken_point_does_not_take_the_others(broken: dict[str, Any], why: str, tmp_path: Path) -> None:
    """The report names the line and the metric; the other points of the metric and of the line are used."""
    bad = cumulative("bad", "gauge", {**point(1), **broken}, point(2, asInt="2"))
    points, reports, reader = read(tmp_path, metrics_line(bad, cumulative("good", "gauge", point(3, asInt="3"))))
    assert [item.value for item in points] == [2, 3]
    assert reports == [f"1: skipped: {why}"]
    assert reader.broken_lines == 1


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"resourceMetrics": 5}', "resourceMetrics is not a list of objects"),
        ('{"resourceMetrics": [{"scopeMetrics": [{"metrics": [1]}]}]}', "metrics is not a list of objects"),
        (metrics_line({"name": 5}), "metric '5': name is not a string"),
        (metrics_line({"name": "m", "gauge": []}), "metric 'm': gauge is not an object"),
        (metrics_line({"name": "m", "sum": {"dataPoints": {}}}), "metric 'm': sum.dataPoints is not a list of objects"),
        (
            metrics_line({"name": "m", "sum": {"aggregationTemporality": "soon"}}),
            "metric 'm': aggregationTemporality is not an integer: 'soon'",
        ),
    ],
)
def test_a_broken_line_of_metrics_is_reported_and_skipped(line: str, why: str, tmp_path: Path) -> None:
    """As with spans, the lines around it are used."""
    good = metrics_line(cumulative("good", "gauge", point(3, asInt="3")))
    points, reports, _ = read(tmp_path, line, good)
    assert [item.name for item in points] == ["good"]
    assert reports == [f"1: skipped: {why}"]


def test_points_without_a_recorded_value_are_left_out(tmp_path: Path) -> None:
    """A point that says that its series had ended is no number."""
    points, reports, _ = read(tmp_path, metrics_line(cumulative("m", "gauge", point(1, flags=1), point(2, asInt="2"))))
    assert ([item.value for item in points], reports) == ([2], [])


def test_spans_and_points_of_one_line_are_both_read(tmp_path: Path) -> None:
    """A file of all signals gives spans and points; where spans alone are asked for, lines of metrics are counted."""
    both = json.loads(span_line()) | json.loads(metrics_line(cumulative("m", "gauge", point(1, asInt="1"))))
    logs = '{"resourceLogs": []}'
    file = tmp_path / "all.jsonl"
    file.write_text(f"{json.dumps(both)}\n{logs}\n{span_line(1)}\n")
    reader = OtlpReader(pytest.fail)
    kinds = [type(item) for item in reader.read_all([file])]
    assert kinds == [Span, MetricPoint, Span]
    assert (reader.spans, reader.points, reader.skipped_lines) == (2, 1, {"log": 1})
    assert reader.bytes_read == file.stat().st_size
    spans_only = OtlpReader(pytest.fail)
    assert [type(item) for item in spans_only.read([file])] == [Span, Span]
    assert (spans_only.points, spans_only.skipped_lines) == (0, {"metric": 1, "log": 1})


def test_a_gauge_is_a_track_of_its_process(tmp_path: Path) -> None:
    """Each rank has the track in its own process, with the unit in the name, and the values at their times."""
    events = drawn(
        tmp_path,
        *(span_line(rank) for rank in (1, 0)),
        metrics_line(cumulative("memory", "gauge", point(1, asInt="5"), point(3, asDouble=2.5), unit="By"), rank=1),
        metrics_line(cumulative("memory", "gauge", point(2, asInt="9"), unit="By"), rank=0),
    )
    assert {(event["ph"], event["name"]) for event in events} == {("C", "memory (By)")}
    by_pid: dict[int, list[tuple[float, Any]]] = {}
    for event in events:
        by_pid.setdefault(event["pid"], []).append((event["ts"], event["args"]["value"]))
    assert by_pid == {1: [(2, 9)], 2: [(1, 5), (3, 2.5)]}


def test_each_attribute_set_is_a_track(tmp_path: Path) -> None:
    """Series of one metric are told apart by their attributes, in an order that does not depend on the writer's."""

    def with_attributes(seconds: float, value: int, *pairs: tuple[str, str]) -> dict[str, Any]:
        attributes = [{"key": key, "value": {"stringValue": text}} for key, text in pairs]
        return point(seconds, asInt=str(value), attributes=attributes)

    events = drawn(
        tmp_path,
        span_line(),
        metrics_line(
            cumulative(
                "tokens",
                "gauge",
                with_attributes(1, 10, ("stage", "a"), ("model", "x")),
                with_attributes(2, 20, ("model", "x"), ("stage", "a")),
                with_attributes(3, 30, ("stage", "b")),
                unit="{token}",
            )
        ),
    )
    assert track(events, "tokens {model=x, stage=a} (token)") == [(1, {"value": 10}), (2, {"value": 20})]
    assert track(events, "tokens {stage=b} (token)") == [(3, {"value": 30})]


def test_instruments_of_one_name_in_two_scopes_are_two_tracks(tmp_path: Path) -> None:
    """The second one's track says whose it is."""
    events = drawn(
        tmp_path,
        span_line(),
        metrics_line(cumulative("size", "gauge", point(1, asInt="1")), scope="first"),
        metrics_line(cumulative("size", "gauge", point(1, asInt="2")), scope="second"),
    )
    assert track(events, "size") == [(1, {"value": 1})]
    assert track(events, "size [second]") == [(1, {"value": 2})]


def test_a_sum_is_its_running_total_whatever_its_temporality(tmp_path: Path) -> None:
    """Differences are added up per process; totals are drawn as they are, also after a restart."""
    events = drawn(
        tmp_path,
        span_line(),
        span_line(1),
        metrics_line(cumulative("total", "sum", *(point(n, asInt=str(v)) for n, v in ((1, 5), (2, 9), (3, 2))))),
        metrics_line(delta("steps", "sum", point(1, asInt="5"), point(2, asInt="4"), unit="1")),
        metrics_line(delta("steps", "sum", point(1, asInt="100")), rank=1),
        metrics_line(delta("steps", "sum", point(3, asInt="1"))),
    )
    assert track(events, "total") == [(1, {"total": 5}), (2, {"total": 9}), (3, {"total": 2})]
    assert track([event for event in events if event["pid"] == 1], "steps") == [
        (1, {"total": 5}),
        (2, {"total": 9}),
        (3, {"total": 10}),
    ]
    assert track([event for event in events if event["pid"] == 2], "steps") == [(1, {"total": 100})]


@pytest.mark.parametrize("kind", ["histogram", "exponentialHistogram", "summary"])
def test_a_cumulative_histogram_is_the_mean_and_count_of_each_interval(kind: str, tmp_path: Path) -> None:
    """The difference of two readings is drawn from the first of them on; an interval without any has a count of 0."""
    events = drawn(
        tmp_path,
        span_line(),
        metrics_line(cumulative("d", kind, point(2, count="4", sum=8.0), unit="s")),
        metrics_line(cumulative("d", kind, point(4, count="6", sum=9.0), unit="s")),
        metrics_line(cumulative("d", kind, point(6, count="6", sum=9.0), unit="s")),
        metrics_line(cumulative("d", kind, point(8, count="7", sum=19.0), unit="s")),
    )
    assert track(events, "d (s)") == [(0, {"mean": 2.0}), (2, {"mean": 0.5}), (6, {"mean": 10.0})]
    assert track(events, "d measurements") == [
        (0, {"count": 4}),
        (2, {"count": 2}),
        (4, {"count": 0}),
        (6, {"count": 1}),
    ]


def test_a_restarted_histogram_counts_from_its_new_beginning(tmp_path: Path) -> None:
    """A process that is replaced by another of the same name makes no negative numbers."""
    restarted = {**point(6, count="2", sum=2.0), "startTimeUnixNano": str(BASE + 5 * SECOND)}
    events = drawn(
        tmp_path,
        span_line(),
        metrics_line(cumulative("d", "histogram", point(2, count="4", sum=8.0), restarted)),
    )
    assert track(events, "d") == [(0, {"mean": 2.0}), (5, {"mean": 1.0})]
    assert track(events, "d measurements") == [(0, {"count": 4}), (5, {"count": 2})]


def test_a_delta_histogram_is_drawn_as_it_is(tmp_path: Path) -> None:
    """Its points are of one interval each; without a sum there is a count alone."""
    later = {**point(4, count="2", sum=2.0), "startTimeUnixNano": str(BASE + 2 * SECOND)}
    without_sum = {**point(6, count="3"), "startTimeUnixNano": str(BASE + 4 * SECOND)}
    events = drawn(
        tmp_path,
        span_line(),
        metrics_line(delta("d", "histogram", point(2, count="4", sum=8.0), later, without_sum)),
    )
    assert track(events, "d") == [(0, {"mean": 2.0}), (2, {"mean": 1.0})]
    assert track(events, "d measurements") == [(0, {"count": 4}), (2, {"count": 2}), (4, {"count": 3})]


def test_a_loss_that_is_no_number_is_a_mark(tmp_path: Path) -> None:
    """No viewer draws NaN in a counter, and it is what one looks for."""
    events = drawn(
        tmp_path,
        span_line(),
        metrics_line(
            cumulative("loss", "gauge", point(1, asDouble=0.5), point(2, asDouble="NaN"), point(3, asDouble="Infinity"))
        ),
    )
    assert [(event["ph"], event["name"], event["ts"]) for event in events] == [
        ("C", "loss", 1),
        ("i", "loss is nan", 2),
        ("i", "loss is inf", 3),
    ]
    assert {event["s"] for event in events if event["ph"] == "i"} == {"p"}


def test_metrics_alone_are_a_picture(tmp_path: Path) -> None:
    """Files of metrics without spans are drawn; points that have no time are not."""
    without_time = {"asInt": "1"}
    events = drawn(tmp_path, metrics_line(cumulative("m", "gauge", point(1, asInt="1"), without_time), rank=3))
    assert track(events, "m") == [(1, {"value": 1})]


def test_of_the_metrics_about_the_telemetry_losses_are_drawn(tmp_path: Path) -> None:
    """That all is well is no part of a picture; that spans are missing in it is."""
    why = [{"key": "error.type", "value": {"stringValue": "queue_full"}}]
    name = "otel.sdk.processor.span.processed"
    of_telemetry = cumulative(
        name,
        "sum",
        point(1, asInt="100"),
        point(1, asInt="0", attributes=why),
        point(2, asInt="7", attributes=why),
        unit="{span}",
    )
    size = cumulative("otel.sdk.processor.span.queue.size", "sum", point(1, asInt="5"))
    own = cumulative("own", "sum", point(1, asInt="1"))
    events = drawn(tmp_path, span_line(), metrics_line(of_telemetry, size, own))
    assert [(event["name"], event["args"], event["ts"]) for event in events] == [
        ("own", {"total": 1}, 1),
        (f"{name} {{error.type=queue_full}} (span)", {"total": 7}, 2),
    ]
