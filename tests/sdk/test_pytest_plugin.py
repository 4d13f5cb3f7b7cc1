"""The pytest plug-in in real sessions of a consumer: what a test sees, and what is left for the next one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.pytest_runs import assert_passed, outcomes, run_suite

# test_messy leaves behind all that a test can, and fails; test_fresh_* fail when they see any of it.
ISOLATION = """
import itertools
import logging
import os

from opentelemetry import baggage, context, metrics, propagate, trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import lib
import pytest
from nemo_lens.api import (NemoLensConfig, SpanRegistry, get_meter, get_pp_trace_carrier, get_telemetry,
    is_span_group_enabled, managed_span, set_enabled_span_groups, set_pp_trace_carrier, setup_telemetry,
    span_attributes)
from nemo_lens.api._diagnostics import warn_once
from nemo_lens.api.instruments import (MetricSpec, create_metric_instruments, record_metrics, register_metric_group,
    registered_metric_groups, unregister_metric_group)
from nemo_lens.sdk.logging_bridge import setup_logging_bridge


def observed(value):
    return [MetricSpec("depth", "queue.depth", "observable_gauge", callback=lambda: value)]


VALUES = itertools.count(7)


def check_that_all_is_new(telemetry, caplog):
    assert SpanRegistry.namespaces() == ("lib",)
    assert is_span_group_enabled("step") and is_span_group_enabled("io") and not is_span_group_enabled("mine")
    assert get_pp_trace_carrier() is None
    assert not trace.get_current_span().get_span_context().is_valid
    assert baggage.get_all() == {}
    assert sorted(registered_metric_groups()) == ["gym", "inference", "lib", "rl", "training"]
    assert [spec.key for spec in registered_metric_groups()["lib"]] == ["loss"]
    assert "NEMO_LENS_RUN_ID" not in os.environ and "OTEL_RESOURCE_ATTRIBUTES" not in os.environ
    assert logging.getLogger().level == logging.WARNING
    assert propagate.get_global_textmap().fields == {"traceparent", "tracestate", "baggage"}
    warn_once("kind", "once")
    assert [record.getMessage() for record in caplog.records if record.name == "nemo_lens"] == ["once"]
    # The same names again, as a constructor of the code under test has them, and other callbacks.
    value = next(VALUES)
    register_metric_group("mine", observed(value))
    create_metric_instruments(telemetry.handle.meter, "mine")
    create_metric_instruments(lib.meter, "mine")
    metrics.get_meter("lib.otel").create_observable_gauge("otel.depth", [lambda options: [metrics.Observation(value)]])
    get_meter("lib").create_observable_gauge("lens.depth", [lambda options: [metrics.Observation(value)]])
    lib.meter.create_observable_gauge("proxy.depth", [lambda options: [metrics.Observation(value)]])
    lib.step()
    telemetry.assert_tree('''
        train.step
          load_batch
          lens
          otel
    ''')
    assert not any("scoped" in span.attributes for span in telemetry.spans)
    assert telemetry.metric("lib.steps").value == telemetry.metric("lib.otel.steps").value == 1
    assert (telemetry.metric("lib.loss").count, telemetry.metric("lib.loss").sum) == (1, 0.5)
    assert {metric.name: metric.value for metric in telemetry.metrics if metric.name.endswith("depth")} == {
        "queue.depth": value, "otel.depth": value, "lens.depth": value, "proxy.depth": value}
    assert [log.body for log in telemetry.logs] == ["stepped"]
    assert telemetry.logs[0].span_id == telemetry.span("train.step").span_id


def test_fresh_a(nemo_lens_telemetry, caplog):
    check_that_all_is_new(nemo_lens_telemetry, caplog)


def test_messy(nemo_lens_telemetry, caplog, monkeypatch):
    check_that_all_is_new(nemo_lens_telemetry, caplog)
    lib.step()
    nemo_lens_telemetry.set_groups(["mine", "io"])
    SpanRegistry.register("other", ["mine"])
    SpanRegistry.register("lib", ["mine"], allow_override=True)
    register_metric_group("lib", [MetricSpec("steps", "lib.other")], allow_override=True)
    unregister_metric_group("gym")
    set_pp_trace_carrier({"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"})
    context.attach(trace.set_span_in_context(nemo_lens_telemetry.handle.tracer.start_span("left open")))
    context.attach(baggage.set_baggage("left", "behind"))
    span_attributes({"scoped": True}).__enter__()
    managed_span("io", "entered").__enter__()
    propagate.set_global_textmap(TraceContextTextMapPropagator())
    setup_logging_bridge("lib", logging.DEBUG).addFilter(lambda record: False)
    setup_logging_bridge("", logging.CRITICAL)
    os.environ["NEMO_LENS_RUN_ID"] = "left"
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = "left=behind"
    get_telemetry().shutdown()
    own = InMemorySpanExporter()
    setup_telemetry(NemoLensConfig(enabled=True, run_id="own", span_groups="all", metrics_enabled=False),
        span_exporter=own)
    lib.step()
    get_telemetry().force_flush()
    assert "lens" in [span.name for span in own.get_finished_spans()]
    raise RuntimeError("the test fails as well")


def test_fresh_b(nemo_lens_telemetry, caplog):
    check_that_all_is_new(nemo_lens_telemetry, caplog)


def test_without_the_fixture():
    assert SpanRegistry.namespaces() == ("lib",) and get_telemetry().tracer is not None
    assert not get_telemetry().is_exporting and not is_span_group_enabled("step")
    assert not trace.get_current_span().get_span_context().is_valid
    assert "NEMO_LENS_RUN_ID" not in os.environ
    lib.step()
"""
PASSING = ("test_fresh_a", "test_fresh_b", "test_without_the_fixture")


@pytest.mark.parametrize(
    "order",
    [
        ("test_fresh_a", "test_messy", "test_without_the_fixture", "test_fresh_b"),
        ("test_messy", "test_fresh_b", "test_without_the_fixture", "test_fresh_a"),
        ("test_without_the_fixture", "test_messy", "test_fresh_b", "test_fresh_a"),
    ],
    ids=",".join,
)
@pytest.mark.timeout(120)
def test_nothing_of_a_test_reaches_the_next(tmp_path: Path, order: tuple[str, ...]) -> None:
    """Groups, registries, sums, context, bridges, variables: whatever a failing test leaves is gone, in any order."""
    done = run_suite(tmp_path, ISOLATION, *(f"test_suite.py::{name}" for name in order))
    assert outcomes(done) == {**dict.fromkeys(PASSING, "passed"), "test_messy": "failed"}, done.stdout
    assert "RuntimeError: the test fails as well" in done.stdout


BESIDE = """
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import lib
from nemo_lens.api import (get_pp_trace_carrier, get_tracer, is_span_group_enabled, set_enabled_span_groups,
    set_pp_trace_carrier, span_attributes, span_cm)
from nemo_lens.api._diagnostics import warn_once

OUTSIDE = trace.SpanContext(1, 2, True, trace.TraceFlags(1))
LEFT = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}


def test_1_that_leaves_its_own():
    context.attach(trace.set_span_in_context(trace.NonRecordingSpan(OUTSIDE)))
    context.attach(baggage.set_baggage("left", "behind"))
    span_attributes({"scoped": True}).__enter__()
    set_pp_trace_carrier(LEFT)
    set_enabled_span_groups(["io"])
    propagate.set_global_textmap(TraceContextTextMapPropagator())
    warn_once("kind", "once")


def test_2_with_the_fixture(nemo_lens_telemetry, caplog):
    assert get_pp_trace_carrier() is None and baggage.get_all() == {}
    assert propagate.get_global_textmap().fields == {"traceparent", "tracestate", "baggage"}
    lib.step()
    assert nemo_lens_telemetry.span("train.step").parent_id == ""
    assert "scoped" not in nemo_lens_telemetry.span("train.step").attributes
    warn_once("kind", "once")
    assert [record.getMessage() for record in caplog.records if record.name == "nemo_lens"] == ["once"]


def test_3_finds_it_again():
    assert trace.get_current_span().get_span_context().span_id == 2
    assert baggage.get_all() == {"left": "behind"} and get_pp_trace_carrier() == LEFT
    assert is_span_group_enabled("io") and not is_span_group_enabled("step")
    assert propagate.get_global_textmap().fields == {"traceparent", "tracestate"}
    with span_cm("outside") as span:
        assert not span.is_recording()
    lib.steps.add(100)
    lib.otel_steps.add(100)


def test_4_with_the_fixture(nemo_lens_telemetry):
    lib.step()
    assert nemo_lens_telemetry.metric("lib.steps").value == nemo_lens_telemetry.metric("lib.otel.steps").value == 1


def test_5_without():
    warn_once("kind", "once")


def test_6_reset_alone(nemo_lens_reset, caplog):
    warn_once("kind", "once")
    assert [record.getMessage() for record in caplog.records if record.name == "nemo_lens"] == ["once"]
    span_attributes({"scoped": "in a test"}).__enter__()


def test_7_finds_it_once_more():
    from nemo_lens.api.scopes import current_scope

    assert current_scope.get() == {"scoped": True}
"""


@pytest.mark.timeout(120)
def test_what_other_tests_left_is_out_of_sight_and_left_to_them(tmp_path: Path) -> None:
    """A test with the fixture sees nothing of tests without it, and later ones find it as it was."""
    assert_passed(run_suite(tmp_path, BESIDE), 7)


@pytest.mark.timeout(120)
def test_works_with_xdist(tmp_path: Path) -> None:
    """Tests that several processes share out record what they record in one."""
    suite = (
        "import lib, pytest\n@pytest.mark.parametrize('n', range(8))\ndef test_it(nemo_lens_telemetry, n):\n"
        "    lib.step()\n    assert nemo_lens_telemetry.metric('lib.steps').value == 1\n"
    )
    done = run_suite(tmp_path, suite, "-n", "2")
    assert_passed(done, 8)


SHELL = """
import os

import lib
import pytest

FIRST = {name: os.environ[name] for name in os.environ if name.startswith(("NEMO_", "OTEL_", "TRACE", "RANK"))}


def now():
    return {name: os.environ[name] for name in os.environ if name.startswith(("NEMO_", "OTEL_", "TRACE", "RANK"))}


@pytest.fixture(autouse=True)
def untouched():
    assert len(FIRST) > 10 and now() == FIRST
    yield
    assert now() == FIRST


def check(telemetry):
    for _ in range(700):
        lib.otel_tracer.start_span("one of many").end()
    lib.step()
    lib.step()
    assert len(telemetry.spans) == 708
    span = telemetry.spans[-1]
    resource = dict(telemetry.handle.resource_attributes)
    assert resource == dict(span.resource)
    assert (resource["service.name"], resource["nemo.run.id"]) == ("test", "test")
    assert resource["service.instance.id"] == "test"
    assert not {"of", "nv.dl.rank", "slurm.job.id", "nv.dl.world_size"} & set(resource)
    assert [span.parent_id for span in telemetry.spans if span.name == "train.step"] == ["", ""]
    assert telemetry.metric("lib.loss").count == 2
    assert telemetry.metric("lib.loss").exemplars
    assert telemetry.metric("lib.steps").value == 2
    assert os.environ["RANK"] == "3", "code under test may need it"
    assert "NEMO_LENS_ENABLED" not in os.environ


def test_one(nemo_lens_telemetry):
    check(nemo_lens_telemetry)


def test_with_a_variable_of_its_own(monkeypatch, nemo_lens_telemetry):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("NEMO_LENS_NEW", "1")
    check(nemo_lens_telemetry)


def test_that_undoes_everything(nemo_lens_telemetry, monkeypatch):
    check(nemo_lens_telemetry)
    monkeypatch.undo()


@pytest.fixture
def of_the_test(monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "of=the.test")


def test_with_a_variable_set_before(of_the_test, nemo_lens_telemetry):
    assert nemo_lens_telemetry.handle.resource_attributes["of"] == "the.test"


def test_that_removes_them(nemo_lens_telemetry):
    os.environ["OTEL_SERVICE_NAME"] = "left"
    os.environ.pop("NEMO_LENS_GROUPS", None)
"""
HOSTILE = {
    "NEMO_LENS_ENABLED": "0",
    "NEMO_LENS_SPAN_GROUPS": "nothing",
    "NEMO_LENS_BACKEND": "other",
    "NEMO_LENS_INSTRUMENT": "missing",
    "OTEL_SDK_DISABLED": "true",
    "OTEL_SERVICE_NAME": "shell",
    "OTEL_RESOURCE_ATTRIBUTES": "of=the.shell,nv.dl.rank=5,service.instance.id=shell",
    "OTEL_TRACES_SAMPLER": "always_off",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "0",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "1",
    "OTEL_METRICS_EXEMPLAR_FILTER": "always_off",
    "OTEL_BSP_MAX_QUEUE_SIZE": "2",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram",
    "OTEL_PROPAGATORS": "none",
    "TRACEPARENT": "00-" + "1" * 32 + "-" + "2" * 16 + "-00",
    "RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "3",
    "TORCHELASTIC_RUN_ID": "elastic",
    "SLURM_JOB_ID": "77",
}


@pytest.mark.timeout(120)
def test_the_shell_changes_nothing(tmp_path: Path) -> None:
    """The developer's variables have no effect on what is recorded, and each is there afterwards as it was."""
    done = run_suite(tmp_path, SHELL, environment=HOSTILE)
    assert_passed(done, 5)


OWN_SETUP = """
import os

from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import lib
import pytest
from nemo_lens.api import get_telemetry, setup_telemetry


def main(**exporters):
    setup_telemetry(**exporters)
    lib.step()
    get_telemetry().force_flush()


@pytest.mark.parametrize("number", [1, 2])
def test_of_code_that_sets_up(nemo_lens_reset, monkeypatch, number):
    assert not get_telemetry().is_exporting
    monkeypatch.setenv("NEMO_LENS_ENABLED", "1")
    monkeypatch.setenv("NEMO_LENS_RUN_ID", f"run{number}")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", "always_off")
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    main(span_exporter=spans, metric_reader=reader)
    assert sorted({span.name for span in spans.get_finished_spans()}) == ["lens", "otel", "train.step"]
    (resource,) = {span.resource.attributes["nemo.run.id"] for span in spans.get_finished_spans()}
    assert resource == f"run{number}"
    found = [metric for of_resource in reader.get_metrics_data().resource_metrics
        for scope in of_resource.scope_metrics for metric in scope.metrics if metric.name == "lib.steps"]
    assert [metric.data.data_points[0].value for metric in found] == [1]


def test_of_code_that_does_not(nemo_lens_telemetry):
    lib.step()
    nemo_lens_telemetry.assert_tree('''
        train.step
          load_batch
          lens
          otel
    ''')
    assert nemo_lens_telemetry.metric("lib.steps").value == 1
    assert nemo_lens_telemetry.metric("lib.otel.steps").value == 1
    assert nemo_lens_telemetry.metric("lib.loss").exemplars


def test_that_leaves_an_unreachable_collector(nemo_lens_reset, monkeypatch):
    monkeypatch.setenv("NEMO_LENS_ENABLED", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    setup_telemetry()
    lib.step()
"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.timeout(120)
def test_code_that_sets_telemetry_up_by_itself(tmp_path: Path, reverse: bool) -> None:
    """nemo_lens_reset lets each test set up anew, and its sampler and reader decide nothing for other tests."""
    names = ["test_of_code_that_sets_up", "test_of_code_that_does_not", "test_that_leaves_an_unreachable_collector"]
    names += ["test_of_code_that_does_not"]
    arguments = [f"test_suite.py::{name}" for name in (reversed(names) if reverse else names)]
    assert_passed(run_suite(tmp_path, OWN_SETUP, *arguments), 4)


REGISTRATIONS = """
import pytest
from nemo_lens.api import SpanRegistry, managed_span
from nemo_lens.api.instruments import MetricSpec, register_metric_group, registered_metric_groups


@pytest.mark.parametrize("number", [1, 2])
def test_late_import(nemo_lens_telemetry, number, caplog):
    import lib

    lib.step()
    assert nemo_lens_telemetry.span("train.step")
    assert nemo_lens_telemetry.metric("lib.loss").count == 1
    assert [record for record in caplog.records if record.name == "nemo_lens"] == []


@pytest.mark.parametrize("number", [1, 2])
def test_registration_in_a_test(nemo_lens_telemetry, number):
    assert "mine" not in SpanRegistry.namespaces() and "mine" not in registered_metric_groups()
    SpanRegistry.register("mine", [f"mine{number}"])
    register_metric_group("mine", [MetricSpec(f"mine{number}", "mine")])
    with managed_span(f"mine{number}", "mine"):
        pass
    nemo_lens_telemetry.assert_tree("mine")
"""


@pytest.mark.timeout(120)
def test_registrations_of_a_test_end_with_it_and_those_of_an_import_do_not(tmp_path: Path) -> None:
    """A module that registers its groups while a test imports it has them in later tests; a test's own are gone."""
    assert_passed(run_suite(tmp_path, REGISTRATIONS), 4)


READING = """
import logging
import sys
import threading
import time

import lib
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from nemo_lens.api import bind_context, get_telemetry, managed_span, mark, setup_telemetry
from nemo_lens.sdk.testing import RecordedTelemetry


def test_a_span(nemo_lens_telemetry: RecordedTelemetry):
    with managed_span("step", "outer", span_kind="server", ids=[1, 2]) as outer:
        with pytest.raises(ValueError), managed_span("io", "inner", links=outer):
            time.sleep(0.01)
            raise ValueError("boom")
    outer, inner = nemo_lens_telemetry.spans
    assert (outer.name, outer.kind, outer.status) == ("outer", "server", "UNSET")
    assert (outer.parent, outer.parent_id) == (None, "")
    assert outer.attributes == {"ids": (1, 2)} and outer.children == [inner] and inner.parent is outer
    assert (inner.status, inner.status_message, inner.kind) == ("ERROR", "ValueError: boom", "internal")
    assert 0.01 <= inner.duration_s <= outer.duration_s < 30
    (event,) = inner.events
    assert (event.name, event.attributes["exception.type"]) == ("exception", "ValueError")
    assert [link.span_id for link in inner.links] == [outer.span_id] and len(outer.span_id) == 16
    assert inner.trace_id == outer.trace_id and len(inner.trace_id) == 32
    assert (inner.scope, inner.resource["service.name"]) == ("nemo.lens.helpers", "test")
    assert nemo_lens_telemetry.span("outer", {"ids": [1, 2]}).span_id == outer.span_id


def test_metrics(nemo_lens_telemetry):
    meter = nemo_lens_telemetry.handle.meter
    gauge, latency = meter.create_gauge("temperature", unit="K"), meter.create_histogram("latency", unit="s")
    gauge.set(3), gauge.set(4, {"where": "a"}), gauge.set(5, {"where": "a", "which": 1})
    latency.record(0.5), latency.record(2.5)
    metric = nemo_lens_telemetry.metric
    assert metric("temperature", {}).value == 3 and metric("temperature", {"which": 1}).value == 5
    assert metric("temperature", {"where": "a"}).value == 4 and metric("temperature", {}).kind == "gauge"
    found = metric("latency")
    assert (found.kind, found.unit) == ("histogram", "s")
    assert (found.count, found.sum, found.min, found.max) == (2, 3.0, 0.5, 2.5)
    with pytest.raises(AttributeError, match="'latency' is a histogram, which has count, sum, min and max and no v"):
        found.value
    with pytest.raises(AttributeError, match="'temperature' is a gauge, which has a value and no count"):
        metric("temperature", {}).count


def test_logs(nemo_lens_telemetry, caplog):
    logging.getLogger("quiet").debug("below the level")
    lib.log.error("saved %d", 3, extra={"step": 7})
    caplog.set_level(logging.DEBUG)
    lib.log.debug("every level that loggers let through")
    saved = nemo_lens_telemetry.log("saved")
    assert (saved.body, saved.severity, saved.severity_number, saved.scope) == ("saved 3", "ERROR", 17, "lib")
    assert saved.attributes["step"] == 7 and (saved.trace_id, saved.span_id) == ("", "")
    assert abs(saved.time_ns / 1e9 - time.time()) < 60
    assert [log.severity for log in nemo_lens_telemetry.logs] == ["ERROR", "DEBUG"]
    with managed_span("step", "outer"):
        lib.log.info("inside")
    inside = nemo_lens_telemetry.log("inside")
    assert (inside.span_id, inside.trace_id) == (
        nemo_lens_telemetry.span("outer").span_id, nemo_lens_telemetry.span("outer").trace_id)


def test_a_tree_of_threads_and_roots(nemo_lens_telemetry):
    def work(name):
        with managed_span("io", name), managed_span("io", "write"):
            pass

    with managed_span("step", "run"):
        threads = [threading.Thread(target=bind_context(work), args=(name,)) for name in ("b", "a", "b")]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
    mark("another root", group="step", attributes={"rank": 0, "name": "x", "hidden": 1})
    nemo_lens_telemetry.assert_tree('''
        another root
        run
            a
                write
            b
                write
            b
                write
    ''', any_order=True)
    assert nemo_lens_telemetry.tree(attributes=["name", "rank"]).splitlines()[-1] == "another root name='x' rank=0"
    with pytest.raises(AssertionError):
        nemo_lens_telemetry.assert_tree("run\\n another root", any_order=True)


def test_a_burst(nemo_lens_telemetry):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(30)  # nobody else gets to run meanwhile
    try:
        for number in range(5000):
            mark("burst", group="step", attributes={"number": number})
    finally:
        sys.setswitchinterval(interval)
    assert len(nemo_lens_telemetry.spans) == 5000


def test_clear(nemo_lens_telemetry):
    lib.step()
    nemo_lens_telemetry.clear()
    assert nemo_lens_telemetry.spans == nemo_lens_telemetry.metrics == nemo_lens_telemetry.logs == []
    lib.step()
    assert nemo_lens_telemetry.metric("lib.steps").value == 1 and len(nemo_lens_telemetry.spans) == 4


def test_after_a_shutdown_by_the_code_under_test(nemo_lens_telemetry):
    lib.step()
    get_telemetry().shutdown()
    lib.step()
    assert len(nemo_lens_telemetry.spans) == 4
    assert nemo_lens_telemetry.metric("lib.steps").value == 1


@pytest.mark.nemo_lens(groups="default", run_id="mine")
class TestMarked:
    def test_spec(self, nemo_lens_telemetry):
        lib.step()
        assert [span.name for span in nemo_lens_telemetry.spans] == ["train.step", "lens", "otel"]
        assert nemo_lens_telemetry.handle.resource_attributes["nemo.run.id"] == "mine"

    @pytest.mark.nemo_lens(groups=["io", "not registered"], resource_attributes={"nv.dl.rank": 3}, service_name="s")
    def test_names(self, nemo_lens_telemetry):
        lib.step()
        with managed_span("not registered", "mine"):
            pass
        assert [span.name for span in nemo_lens_telemetry.spans] == ["load_batch", "lens", "otel", "mine"]
        resource = nemo_lens_telemetry.handle.resource_attributes
        assert (resource["service.instance.id"], resource["service.name"]) == ("mine-rank3", "s")

    def test_during_a_test(self, nemo_lens_telemetry):
        nemo_lens_telemetry.set_groups([])
        with managed_span("step", "no"):
            nemo_lens_telemetry.set_groups("all")
            mark("yes", group="step")
        assert nemo_lens_telemetry.tree() == "yes"
"""


@pytest.mark.timeout(120)
def test_what_a_test_reads(tmp_path: Path) -> None:
    """Spans, metrics, log records, trees and settings are as the documentation of the fixture says."""
    assert_passed(run_suite(tmp_path, READING), 10)


FAILURES = """
import lib
import pytest
from nemo_lens.api import managed_span


@pytest.fixture(autouse=True)
def recorded(request, nemo_lens_telemetry):
    if "empty" not in request.node.name:
        with pytest.raises(ValueError):
            lib.step(fail=True)
        nemo_lens_telemetry.handle.meter.create_histogram("wait").record(2, {"of": "io"})
        nemo_lens_telemetry.handle.meter.create_histogram("wait").record(2, {"of": "step"})


def test_tree(nemo_lens_telemetry):
    nemo_lens_telemetry.assert_tree('''
        train.step
          load_batches size=4
          lens
          otel
    ''', attributes=["size"])


def test_tree_with_the_root_open(nemo_lens_telemetry):
    nemo_lens_telemetry.clear()
    with managed_span("step", "run"), managed_span("step", "epoch"):
        lib.step()
        nemo_lens_telemetry.assert_tree('''
            run
              train.step
        ''')


def test_tree_empty(nemo_lens_telemetry):
    nemo_lens_telemetry.set_groups("io")
    nemo_lens_telemetry.assert_tree("train.step")


def test_tree_badly_indented(nemo_lens_telemetry):
    nemo_lens_telemetry.assert_tree('''
        a
            b
          c
    ''')


def test_span(nemo_lens_telemetry):
    nemo_lens_telemetry.span("load_batches")


def test_span_empty(nemo_lens_telemetry):
    nemo_lens_telemetry.span("load_batches")


def test_span_attributes(nemo_lens_telemetry):
    nemo_lens_telemetry.span("load_batch", {"size": 5})


def test_span_twice(nemo_lens_telemetry):
    lib.step()
    nemo_lens_telemetry.span("load_batch")


def test_metric(nemo_lens_telemetry):
    nemo_lens_telemetry.metric("lib.step")


def test_metric_series(nemo_lens_telemetry):
    nemo_lens_telemetry.metric("wait")


def test_metric_attributes(nemo_lens_telemetry):
    nemo_lens_telemetry.metric("wait", {"of": "x"})


def test_metric_empty(nemo_lens_telemetry):
    nemo_lens_telemetry.metric("wait")


def test_log(nemo_lens_telemetry):
    nemo_lens_telemetry.log("Stepped")
"""
MESSAGES = {
    "test_tree": """
        AssertionError: the span tree is not as expected (- expected, + recorded):
          - train.step
          -   load_batches size=4
          + train.step ERROR
          +   load_batch size=4
              lens
              otel""",
    "test_tree_with_the_root_open": """
        AssertionError: the span tree is not as expected (- expected, + recorded):
          - run
          -   train.step
          + train.step
          +   load_batch
          +   lens
          +   otel
        Still open: run, epoch""",
    "test_tree_empty": """
        AssertionError: the span tree is not as expected (- expected, + recorded):
          - train.step
        Span groups that are on: io""",
    "test_tree_badly_indented": """
        ValueError: expected tree: 'c' is indented like no line above it""",
    "test_span": """
        AssertionError: no span named 'load_batches' has ended, did you mean 'load_batch'?
        Ended:
          train.step ERROR
            load_batch
            lens
            otel
        Span groups that are on: io, step""",
    "test_span_empty": """
        AssertionError: no span named 'load_batches' has ended, nor any other
        Span groups that are on: io, step""",
    "test_span_attributes": """
        AssertionError: no span named 'load_batch' with attributes {'size': 5} has ended; of that name:
          load_batch size=4""",
    "test_span_twice": """
        AssertionError: 2 spans named 'load_batch' have ended:
          load_batch size=4
          load_batch size=4""",
    "test_metric": """
        AssertionError: no metric 'lib.step' was recorded, did you mean 'lib.steps'?
        Recorded:
          lib.loss: histogram, count 1, sum 0.5
          lib.otel.steps: sum 1
          lib.steps: sum 1
          wait of='io': histogram, count 1, sum 2
          wait of='step': histogram, count 1, sum 2""",
    "test_metric_series": """
        AssertionError: metric 'wait' has 2 series; recorded:
          wait of='io': histogram, count 1, sum 2
          wait of='step': histogram, count 1, sum 2""",
    "test_metric_attributes": """
        AssertionError: metric 'wait' has 0 series with attributes {'of': 'x'}; recorded:
          wait of='io': histogram, count 1, sum 2
          wait of='step': histogram, count 1, sum 2""",
    "test_metric_empty": """
        AssertionError: no metric 'wait' was recorded, nor any other""",
    "test_log": """
        AssertionError: no log record contains 'Stepped'
        Recorded:
          WARN lib: 'stepped' code.""",
}


@pytest.mark.timeout(120)
def test_failures_are_readable(tmp_path: Path) -> None:
    """Each failed look-up and comparison says what was recorded, and points at the line of the test."""
    done = run_suite(tmp_path, FAILURES)
    assert outcomes(done) == dict.fromkeys(MESSAGES, "failed"), done.stdout
    sections = done.stdout.split("short test summary")[0].split("\n_____")[1:]
    shown = {section.strip("_ ").split(" ")[0]: section for section in sections}
    for name, message in MESSAGES.items():
        lines = message.splitlines()[1:]
        expected = "\n".join(f"E   {line[8:]}" for line in lines)
        assert expected in shown[name], shown[name]
        traceback = [line for line in shown[name].splitlines() if line.startswith(("test_suite.py:", "/"))]
        assert len(traceback) == 1 or name == "test_tree_badly_indented", shown[name]
    assert "lets WARNING and above through; caplog.set_level(logging.INFO) lowers that for a test" in shown["test_log"]


MARKS = """
import pytest

@pytest.mark.nemo_lens(group="io")
def test_unknown(nemo_lens_telemetry): ...

@pytest.mark.nemo_lens("io")
def test_positional(nemo_lens_telemetry): ...

@pytest.mark.nemo_lens(groups=3)
def test_groups(nemo_lens_telemetry): ...

@pytest.mark.nemo_lens(resource_attributes="rank=3")
def test_attributes(nemo_lens_telemetry): ...

@pytest.mark.nemo_lens(run_id=" ")
def test_run_id(nemo_lens_telemetry): ...

@pytest.mark.nemo_lens(groups="io")
def test_without_the_fixture(): ...
"""


def test_wrong_marks_are_usage_errors(tmp_path: Path) -> None:
    """What the marker does not take is an error that names it and what it takes, and no traceback of ours."""
    done = run_suite(tmp_path, MARKS)
    names = ("unknown", "positional", "groups", "attributes", "run_id")
    assert outcomes(done) == {
        **{f"test_{name}": "error" for name in names},
        "test_without_the_fixture": "passed",
    }, done.stdout
    known = "groups, resource_attributes, service_name, run_id"
    for message in (
        f"@pytest.mark.nemo_lens has no argument 'group'; it takes: {known}, did you mean 'groups'?",
        f"@pytest.mark.nemo_lens takes keywords only ({known}), such as groups='io'",
        "@pytest.mark.nemo_lens: groups=3: expected a spec such as 'default,io' or 'all', or names of span groups",
        "@pytest.mark.nemo_lens: resource_attributes='rank=3': expected a mapping of names to values",
        "@pytest.mark.nemo_lens: run_id=' ': expected a str that is not blank",
    ):
        assert message in done.stdout.splitlines(), done.stdout
    assert "pytest_plugin.py" not in done.stdout
    assert "nemo_lens(groups='all'" in run_suite(tmp_path, "", "--markers").stdout


ALREADY_ON = """
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from nemo_lens.api import NemoLensConfig, get_telemetry, setup_telemetry


@pytest.fixture(scope="module")
def outside():
    with setup_telemetry(NemoLensConfig(enabled=True, metrics_enabled=False, run_id="r"),
            span_exporter=InMemorySpanExporter()) as handle:
        yield handle


def test_telemetry(outside, nemo_lens_telemetry): ...


def test_reset(outside, nemo_lens_reset): ...


def test_left_alone(outside):
    assert get_telemetry() is outside and outside.is_exporting
"""


def test_telemetry_that_is_on_already_is_an_error_and_stays_on(tmp_path: Path) -> None:
    """With telemetry set up around the test, the fixtures say where to look and leave it as it is."""
    done = run_suite(tmp_path, ALREADY_ON)
    expected = {"test_telemetry": "error", "test_reset": "error", "test_left_alone": "passed"}
    assert outcomes(done) == expected, done.stdout
    assert done.stdout.count("telemetry is on already, so that it cannot be set up for this test alone.") >= 2
    assert "a fixture of a wider scope" in done.stdout
    assert "isolation.py" not in done.stdout


def test_a_session_that_does_not_use_it_loads_nothing(tmp_path: Path) -> None:
    """The plug-in brings neither OpenTelemetry nor the API into a session, and does no harm there."""
    suite = (
        "import sys\n\ndef test_it(request):\n"
        "    assert request.config.pluginmanager.has_plugin('nemo_lens')\n"
        "    ours = sorted(name for name in sys.modules if name.startswith(('nemo_lens.', 'opentelemetry')))\n"
        "    assert ours == ['nemo_lens.sdk', 'nemo_lens.sdk.pytest_plugin']\n"
    )
    assert_passed(run_suite(tmp_path, suite), 1)


def test_loading_it_imports_only_itself(tmp_path: Path) -> None:
    """Beside pytest, which is there, the module needs what every interpreter has loaded."""
    program = (
        "import pytest, sys; before = set(sys.modules)\n"
        "import nemo_lens.sdk.pytest_plugin\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in (
        "['nemo_lens', 'nemo_lens.sdk', 'nemo_lens.sdk.pytest_plugin']",
        "['nemo_lens.sdk', 'nemo_lens.sdk.pytest_plugin']",
    )


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    """With -p no:nemo_lens other tests run, and the fixtures are not there."""
    suite = "def test_other(): ...\n\ndef test_with(nemo_lens_telemetry): ...\n"
    done = run_suite(tmp_path, suite, "-p", "no:nemo_lens")
    assert outcomes(done) == {"test_other": "passed", "test_with": "error"}
    assert "fixture 'nemo_lens_telemetry' not found" in done.stdout
