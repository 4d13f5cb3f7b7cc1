"""Metric readers of the job's own: scraped, in memory, by hand, periodic; and the readers of one run after another."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
from process_runs import Written, run, warnings_of

from support.otlp_receiver import OtlpReceiver

_PROGRAM = "metric_readers"
_prometheus = pytest.mark.skipif(
    find_spec("opentelemetry.exporter.prometheus") is None and not os.environ.get("CI", "").strip(),
    reason="opentelemetry-exporter-prometheus is not installed",
)


def scraped(lines: list[str]) -> dict[str, float]:
    """Return the values of a scrape by series, without the labels of the scope: each series is there once."""
    values: dict[str, float] = {}
    for line in lines:
        series, _, value = line.rpartition(" ")
        name, _, labels = series.partition("{")
        le = next((label for label in labels.rstrip("}").split(",") if label.startswith("le=")), "")
        if "_created" not in name and name != "target_info":
            assert (name + le) not in values, lines
            values[name + le] = float(value)
    return values


def target(lines: list[str]) -> str:
    """Return the line with the attributes of the resource."""
    (line,) = [line for line in lines if line.startswith("target_info")]
    return line


@_prometheus
def test_prometheus_scrapes_the_job(written: Written) -> None:
    """The official Prometheus reader serves what the job measures, with its resource, and stops at the shutdown.

    Flushes before a scrape neither lose nor double anything, nor do they pile up for the next one.
    """
    ended = run(_PROGRAM, "scraped", environ=written.environ)
    assert (ended.code, ended.stderr) == (0, "")
    running = ended.fact("running")
    assert scraped(running) == {
        "done_total": 3,
        "duration_seconds_bucket" + 'le="1.0"': 1,
        "duration_seconds_bucket" + 'le="+Inf"': 1,
        "duration_seconds_count": 1,
        "duration_seconds_sum": 0.5,
        "depth": 4,
        "observed_total": 7,
    }
    for label in ('service_name="process-test"', 'service_instance_id="run-1-rank2"', 'nv_dl_rank="2"'):
        assert label in target(running)
    assert ended.fact("confirmed") == [True] * 5
    flushed = scraped(ended.fact("flushed"))
    assert (flushed["done_total"], flushed["duration_seconds_count"], flushed["depth"]) == (5, 2, 4)
    assert scraped(ended.fact("again"))["done_total"] == 5
    assert (ended.fact("shut_down"), ended.all_facts("exporting")) == ([], [True, False])
    assert written.points() == []


@_prometheus
def test_a_forked_child_is_scraped_for_itself(written: Written) -> None:
    """A child's scrape holds what the child measured, under its pid and instance; the parent's what the parent did."""
    ended = run(_PROGRAM, "scraped_in_child", environ=written.environ)
    assert (ended.code, ended.stderr) == (0, "")
    child, parent = ended.fact("child"), ended.fact("parent")
    assert (scraped(child)["done_total"], scraped(child)["duration_seconds_count"]) == (2, 1)
    assert (scraped(parent)["done_total"], scraped(parent)["duration_seconds_count"]) == (4, 2)
    assert f'process_pid="{ended.fact("child_pid")}"' in target(child)
    assert f'service_instance_id="run-1-rank2-{ended.fact("child_pid")}"' in target(child)
    assert f'process_pid="{ended.fact("parent_pid")}"' in target(parent)
    assert ended.fact("child_shut_down") == []


def test_a_reader_in_memory_keeps_its_deltas(written: Written) -> None:
    """Flushes take nothing from who reads the metrics in memory, and the last ones are there after the shutdown."""
    ended = run(_PROGRAM, "in_memory", environ=written.environ)
    assert (ended.code, ended.stderr) == (0, "")
    assert (ended.fact("confirmed"), ended.fact("first"), ended.fact("last")) == (True, [5], [4])


def test_a_reader_that_pushes_is_flushed_before_its_end(written: Written) -> None:
    """A reader with no schedule and no collection at its end has the last numbers all the same."""
    ended = run(_PROGRAM, "by_hand", environ=written.environ)
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.fact("confirmed")
    assert ended.fact("received") == [[3], [5], ["shut down"]]


@pytest.mark.parametrize("interval_ms", ["60000", "inf"])
def test_a_periodic_reader_sends_the_last_numbers_once(otlp_receiver: OtlpReceiver, interval_ms: str) -> None:
    """The shutdown sends the last numbers of a periodic reader once, also of one that never collects by itself.

    A forked child sends its own, as an instance of its own.
    """
    ended = run(_PROGRAM, "periodic", otlp_receiver.http_endpoint, interval_ms)
    assert (ended.code, ended.stderr) == (0, "")
    sent = [
        (point["resource"]["process.pid"], point["resource"]["service.instance.id"], point["value"])
        for point in otlp_receiver.points()
        if point["name"] == "done"
    ]
    child = ended.fact("child")
    assert sorted(sent) == sorted([(ended.fact("pid"), "run-1-rank2", 7), (child, f"run-1-rank2-{child}", 2)])


def test_readers_of_one_run_after_another(written: Written) -> None:
    """Each run reaches its own reader from zero; instruments of the first run reach the first reader, which is said.

    A reader that has been used beside the first is refused, by name, before anything is installed; a run without one
    exports as configured.
    """
    ended = run(_PROGRAM, "again", environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert (ended.fact("first"), ended.fact("other"), ended.fact("first_again")) == ([1], [5], [7])
    assert "metric_reader=" in ended.fact("refused")
    assert "give an OpenTelemetry metric reader that is new" in ended.fact("refused")
    # of the second reader, twice (the second time it is refused), and of the two runs without one
    assert len(warnings_of(ended.stderr, "set up with another metric reader")) == 4, ended.stderr
    assert [point["value"] for point in written.points() if point["name"] == "done"] == [20, 30]


def test_the_attribute_sets_of_a_later_run_are_its_own(written: Written) -> None:
    """A run whose metrics had more attribute sets than are kept leaves room for those of the next run."""
    ended = run(_PROGRAM, "many_sets", environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert len(warnings_of(ended.stderr, "otel.metric.overflow=true")) == 1, ended.stderr
    series: dict[str, list[dict[str, object]]] = {"run-1": [], "run-2": []}
    for point in written.points():
        if point["name"] == "requests":
            series[point["resource"]["nemo.run.id"]].append(point["attributes"])
    overflow = {"otel.metric.overflow": True}
    assert (len(series["run-1"]), overflow in series["run-1"]) == (2000, True)
    assert series["run-2"] == [{"id": 5000}]


def test_a_reader_that_was_shut_down_is_said(written: Written) -> None:
    """A second run with the reader that the first has shut down gets one WARNING that it may report nothing."""
    ended = run(_PROGRAM, "shut_down_reader", environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert len(warnings_of(ended.stderr, "ManualReader was shut down with an earlier run")) == 1, ended.stderr


def test_what_cannot_be_a_reader_is_refused(written: Written) -> None:
    """A reader of another provider, and what is no reader, are refused by name; the next set-up works."""
    ended = run(_PROGRAM, "taken", environ=written.environ)
    assert ended.code == 0, ended.stderr
    of_another, no_reader = ended.all_facts("refused")
    assert "InMemoryMetricReader" in of_another
    assert "registered already" in of_another
    assert no_reader.startswith("metric_reader=7 cannot be used")
    assert [point["value"] for point in written.points() if point["name"] == "done"] == [1]


def test_settings_of_the_first_set_up_stay(written: Written) -> None:
    """Exemplar filter and temporality are those of the first set-up; that others are ignored is one WARNING."""
    ended = run(_PROGRAM, "changed_settings", environ=written.environ)
    assert ended.code == 0, ended.stderr
    (said,) = warnings_of(ended.stderr, "stay those of the first set-up")
    assert "OTEL_METRICS_EXEMPLAR_FILTER='always_on'" in said
    assert "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE='delta'" in said
    (point,) = [point for point in written.points() if point["name"] == "done"]
    assert (point["temporality"], point["exemplars"]) == (2, [])


def test_a_bad_preference_leaves_nothing_behind(written: Written) -> None:
    """A preference that there is not is an error that names it, and the corrected set-up is a first one."""
    ended = run(_PROGRAM, "bad_settings", environ=written.environ)
    assert (ended.code, ended.stderr) == (0, "")
    assert "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE='deltas'" in ended.fact("refused")
    assert [(point["value"], point["temporality"]) for point in written.points() if point["name"] == "done"] == [(1, 1)]
