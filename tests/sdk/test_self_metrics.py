"""Metrics about the telemetry itself, at a receiver and at readers: what was exported, failed, dropped and waits."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nemo_lens.api import NemoLensConfig, semconv, setup_telemetry
from nemo_lens.sdk.export_counts import AtomicCount, ExportCounts
from nemo_lens.sdk.testing import RecordedTelemetry
from support.otlp_decode import Record, points_of
from support.otlp_receiver import OtlpReceiver
from support.said import said_by

_PROGRAM = Path(__file__).parent.parent / "support" / "programs" / "self_metrics.py"
SWITCH = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"
OURS = "nemo.lens.sdk"
TRANSPORTS = {"grpc": "otlp_grpc", "http/protobuf": "otlp_http"}
# A batch of four, a queue of four, and nothing exported before it is asked for.
SMALL = {"OTEL_BSP_MAX_QUEUE_SIZE": "4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4", "OTEL_BSP_SCHEDULE_DELAY": "60000"}
SPAN_PROCESSOR = "nemo_lens.sdk.processor.LensSpanProcessor"
LOG_PROCESSOR = "nemo_lens.sdk.outlets.LogOutlet"


def run(scenario: str, environ: Mapping[str, str] | None = None) -> tuple[list[Record], str]:
    """Run a scenario of the program to its end; return what it said, and its standard error."""
    warnings = ("-W", "error", "-W", "ignore:This process (pid")
    return said_by(*warnings, str(_PROGRAM), scenario, environ=environ or {})


def values(read: list[list[Any]]) -> dict[str, Any]:
    """Return the points of a reading: name, with the error after a blank, to value."""
    found = {f"{name} {reason}".strip(): value for name, reason, value in read}
    assert len(found) == len(read)
    return found


def about_telemetry(receiver: OtlpReceiver) -> list[list[Record]]:
    """Return the points about the telemetry of each collection that came."""
    collections: list[list[Record]] = []
    for request in receiver.requests("metrics"):
        points = points_of(request.payload)
        collections.append([point for point in points if point["name"].startswith("otel.sdk.")])
    return collections


@pytest.mark.parametrize("protocol", TRANSPORTS)
def test_every_metric_arrives_as_the_conventions_have_it(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """Names, kinds, units and components of all three signals, over either protocol, with the right numbers."""
    (said,), _ = run("healthy", otlp_receiver.environ(protocol))
    assert said == {"flushed": [True, True]}
    *_, middle, last = about_telemetry(otlp_receiver)
    assert {point["name"] for point in last} == set(semconv.OTEL_SDK_METRIC_FIELDS)
    assert {point["scope"] for point in last} == {OURS}
    assert {point["resource"]["service.instance.id"] for point in last} == {"self-rank0"}
    for point in last:
        kind, unit = semconv.OTEL_SDK_METRIC_FIELDS[point["name"]]
        assert (point["kind"], point["monotonic"], point["unit"]) == ("sum", kind == "counter", unit), point["name"]
        component = point["attributes"][semconv.OTEL_COMPONENT_TYPE]
        assert point["attributes"][semconv.OTEL_COMPONENT_NAME] == f"{component}/0"
        assert set(point["attributes"]) <= set(semconv.OTEL_SDK_METRIC_ATTRIBUTES)
    components = {point["name"]: point["attributes"][semconv.OTEL_COMPONENT_TYPE] for point in last}
    for name, component in components.items():
        if ".exporter." in name:
            signal = name.split(".")[3].removesuffix("_data_point")
            assert component == f"{TRANSPORTS[protocol]}_{signal}_exporter"
        else:
            assert component == (SPAN_PROCESSOR if ".span." in name else LOG_PROCESSOR)
    assert totals(middle)["exporter.span.exported"] == 3
    assert totals(last) == {
        "processor.span.processed": 5,
        "processor.span.processed queue_full": 0,
        "processor.span.queue.size": 0,
        "processor.span.queue.capacity": 2048,
        "exporter.span.exported": 5,
        "exporter.span.exported _OTHER": 0,
        "exporter.span.inflight": 0,
        "processor.log.processed": 1,
        "processor.log.processed queue_full": 0,
        "processor.log.queue.size": 0,
        "processor.log.queue.capacity": 2048,
        "exporter.log.exported": 1,
        "exporter.log.exported _OTHER": 0,
        "exporter.log.inflight": 0,
        "exporter.metric_data_point.exported": sum(
            len(list(points_of(request.payload))) for request in otlp_receiver.requests("metrics")[:-1]
        ),
        "exporter.metric_data_point.exported _OTHER": 0,
        "exporter.metric_data_point.inflight": 0,
    }


def totals(points: list[Record]) -> dict[str, Any]:
    """Return the values of points that arrived, named as those of a reading."""
    named = [
        [point["name"].removeprefix("otel.sdk."), point["attributes"].get(semconv.ERROR_TYPE, ""), point["value"]]
        for point in points
    ]
    return values(named)


def test_the_last_collection_counts_the_last_spans(otlp_receiver: OtlpReceiver) -> None:
    """What is exported at the end of a short job is in its numbers: metrics are collected after it."""
    run("spans_alone", otlp_receiver.environ("http/protobuf"))
    (collection,) = about_telemetry(otlp_receiver)
    assert totals(collection)["exporter.span.exported"] == 3


def test_signals_that_are_off_are_not_reported(otlp_receiver: OtlpReceiver) -> None:
    """Without logs there is no metric about logs."""
    run("spans_alone", otlp_receiver.environ("http/protobuf"))
    (collection,) = about_telemetry(otlp_receiver)
    assert not [point["name"] for point in collection if ".log." in point["name"]]


def test_a_process_that_has_nothing_to_export_says_nothing(otlp_receiver: OtlpReceiver) -> None:
    """An idle process does not connect for its own health alone: a job forks many, and their collector may be dead."""
    (said,), _ = run("idle", otlp_receiver.environ("http/protobuf"))
    assert said == {"flushed": [True]}
    assert otlp_receiver.requests() == []


@pytest.mark.parametrize("protocol", TRANSPORTS)
def test_what_a_receiver_refuses_is_an_error(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """Spans that the receiver refuses for good are failed ones, in the collection that it accepts later."""
    otlp_receiver.demand_header("x-signal", "metrics")
    environ = {"OTEL_EXPORTER_OTLP_METRICS_HEADERS": "x-signal=metrics", **otlp_receiver.environ(protocol)}
    run("spans_alone", environ)
    found = totals(about_telemetry(otlp_receiver)[-1])
    assert (found["exporter.span.exported"], found["exporter.span.exported _OTHER"]) == (0, 3)


def test_metrics_that_did_not_arrive_are_counted(otlp_receiver: OtlpReceiver) -> None:
    """The data points of a collection that was refused are failed ones in the next."""
    otlp_receiver.demand_header("x-signal", "spans")
    environ = {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-signal=spans", **otlp_receiver.environ("http/protobuf")}
    run("healthy", environ)
    assert otlp_receiver.points() == []
    found = totals(about_telemetry(otlp_receiver)[-1])
    refused = [len(list(points_of(request.payload))) for request in otlp_receiver.requests("metrics")]
    assert found["exporter.metric_data_point.exported"] == 0
    assert found["exporter.metric_data_point.exported _OTHER"] == sum(refused[:-1]) > 0


def test_drops_at_a_full_queue() -> None:
    """Dropped spans are processed ones with queue_full; reading them changes neither them nor what the handle lost."""
    said, stderr = run("full_queue", SMALL)
    first, second, last = said
    assert values(first["read"]) == {
        "processor.span.processed": 4,
        "processor.span.processed queue_full": 5,
        "processor.span.queue.size": 4,
        "processor.span.queue.capacity": 4,
        "exporter.span.exported": 0,
        "exporter.span.exported _OTHER": 0,
        "exporter.span.inflight": 4,
    }
    assert first["lost"] == [13, 13]
    assert second == {"read": first["read"], "lost": [13]}
    found = values(last["read"])
    assert (found["processor.span.processed"], found["exporter.span.exported"]) == (8, 8)
    assert (found["processor.span.processed queue_full"], found["processor.span.queue.size"]) == (5, 0)
    assert last["lost"] == [5]
    assert "5 spans were dropped" in stderr


def test_counting_in_many_threads_loses_nothing() -> None:
    """Each drop is counted once, however many threads drop and whoever reads meanwhile."""
    counted, seen = AtomicCount(), []

    def drop() -> None:
        for _ in range(20_000):
            counted.add()

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.append(counted.value)
    assert counted.value == counted.value == 80_000
    assert seen == sorted(seen)


def test_why_an_export_failed() -> None:
    """An exporter that raises gives its exception's type, one that returns a failure _OTHER; both are failed spans."""
    (said,), _ = run("failing")
    found = values(said["read"])
    exported = {name: value for name, value in found.items() if name.startswith("exporter.span.exported")}
    assert exported == {
        "exporter.span.exported": 3,
        "exporter.span.exported _OTHER": 2,
        "exporter.span.exported ConnectionResetError": 1,
    }
    assert found["processor.span.processed"] == 6
    assert found["exporter.span.inflight"] == 0


def test_reasons_are_few() -> None:
    """Exceptions of ever new types do not make ever new series, and one without a name is none of its own."""
    counts = ExportCounts()
    for number in range(100):
        counts.fail(2, f"Error{number}")
    counts.fail(3, "")
    assert len(counts.failed) == 16
    assert (sum(counts.failed.values()), counts.failed["_OTHER"], counts.failed["Error14"]) == (203, 173, 2)


def test_why_a_file_could_not_be_written(tmp_path: Path) -> None:
    """The exporters that come with the SDK say what they raised, too."""
    folder = tmp_path / "traces"
    folder.mkdir()
    (said,), _ = run("exporting_to_files", {"FOLDER": str(folder)})
    found = values(said["read"])
    assert found["exporter.span.exported FileExistsError"] == 3
    assert found["exporter.span.exported"] == 0


def test_a_forked_child_counts_for_itself() -> None:
    """A child that exports starts at zero, one that does not says nothing, the parent's stay the parent's."""
    (idle, busy, parent), _ = run("forked")
    assert idle == {"child": 0, "read": []}
    assert busy["child"] == 1
    assert values(busy["read"])["exporter.span.exported"] == 1
    assert values(busy["read"])["processor.span.processed"] == 1
    assert values(parent["read"])["exporter.span.exported"] == 5


def test_each_run_of_a_process_counts_for_itself() -> None:
    """A second run starts at zero, as all sums do, each metric is there once, and between runs is nothing."""
    said, stderr = run("two_runs")
    before, first, between, again, second, after = (fact["read"] for fact in said)
    assert [before, between, again, after] == [[], [], [], []]
    assert values(first)["exporter.span.exported"] == 5
    assert values(second)["exporter.span.exported"] == 2
    assert "instrument" not in stderr.lower()


def test_beside_a_meter_provider_of_the_application() -> None:
    """They go where the handle's metrics go; the application's own provider is left alone."""
    (said,), _ = run("on_a_host")
    assert values(said["read"])["exporter.span.exported"] == 3
    assert said["host"] == []


@pytest.mark.parametrize("text", ["false", " False "])
def test_the_switch(otlp_receiver: OtlpReceiver, text: str) -> None:
    """The standard variable switches them off, and nothing is sent that nobody recorded."""
    run("spans_alone", {**otlp_receiver.environ("http/protobuf"), SWITCH: text})
    assert len(otlp_receiver.spans()) == 3
    assert otlp_receiver.requests("metrics") == []


def test_no_component_is_counted_twice(otlp_receiver: OtlpReceiver) -> None:
    """With the variable true the newest SDK counts, too, in a scope of its own: not what Lens counts already."""
    run("healthy", {**otlp_receiver.environ("http/protobuf"), SWITCH: "true"})
    last = about_telemetry(otlp_receiver)[-1]
    assert totals([point for point in last if point["scope"] == OURS])["exporter.span.exported"] == 5
    counted_by_lens = {point["name"] for point in last if point["scope"] == OURS}
    assert counted_by_lens == set(semconv.OTEL_SDK_METRIC_FIELDS)
    assert not counted_by_lens & {point["name"] for point in last if point["scope"] != OURS}


@pytest.mark.parametrize(("text", "shown"), [("", False), ("true", True)])
def test_a_console_shows_them_when_asked(
    nemo_lens_reset: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, shown: bool
) -> None:
    """Who looks at metrics on a console sees their own."""
    monkeypatch.setenv(SWITCH, text)
    with setup_telemetry(NemoLensConfig(enabled=True, exporter="console", span_groups="")) as handle:
        handle.meter.create_counter("own").add(1)
        handle.tracer.start_span("work").end()
    written = capsys.readouterr().out
    assert '"name":"own"' in written
    assert ("otel.sdk.exporter.span.exported" in written) is shown


def test_a_value_that_is_none_is_refused(nemo_lens_reset: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither true nor false is an error that names the variable, before anything is installed."""
    monkeypatch.setenv(SWITCH, "yes")
    with pytest.raises(ValueError, match=f"{SWITCH}='yes' must be true or false"):
        setup_telemetry(NemoLensConfig(enabled=True, exporter="otlp"))


def test_a_test_sees_what_it_recorded(nemo_lens_telemetry: RecordedTelemetry) -> None:
    """The fixture's metrics are those of the code under test."""
    nemo_lens_telemetry.handle.tracer.start_span("work").end()
    assert nemo_lens_telemetry.metrics == []
    assert nemo_lens_telemetry.metrics == []


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_test_that_asks_sees_them(nemo_lens_reset: None, monkeypatch: pytest.MonkeyPatch, attempt: int) -> None:
    """A test that switches them on has them, also when one before it had."""
    from nemo_lens.sdk.testing.metrics import InMemoryMetricExporter

    monkeypatch.setenv(SWITCH, "true")
    metrics = InMemoryMetricExporter()
    with setup_telemetry(NemoLensConfig(enabled=True, traces_enabled=False), metric_reader=metrics) as handle:
        handle.meter.create_counter("own").add(1)
        handle.force_flush(10_000)
    found = {metric.name: metric.attributes for metric in metrics.recorded() if metric.scope == OURS}
    assert set(found) == {
        semconv.OTEL_SDK_EXPORTER_METRIC_DATA_POINT_EXPORTED,
        semconv.OTEL_SDK_EXPORTER_METRIC_DATA_POINT_INFLIGHT,
    }
    kind = found[semconv.OTEL_SDK_EXPORTER_METRIC_DATA_POINT_INFLIGHT][semconv.OTEL_COMPONENT_TYPE]
    assert kind == "nemo_lens.sdk.testing.metrics.InMemoryMetricExporter"
