"""One process shared by several parties: libraries, a host application, one run after another, failed set-ups."""

from __future__ import annotations

import pytest
from process_runs import Written, run, warnings_of

from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(60)


def test_the_second_of_two_libraries_shares(written: Written) -> None:
    """A second set-up is refused with what to do instead; ``get_telemetry`` gives the first one's working handle."""
    ended = run("shared", "two_libraries", environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert "get_telemetry()" in ended.fact("refused")
    assert (ended.fact("shared"), ended.fact("exporting")) == (True, True)
    assert (ended.fact("after"), ended.fact("first_exporting")) == (False, False)
    first, second = written.span("of first"), written.span("of second")
    assert second["parent_id"] == first["span_id"]
    assert first["resource"] == second["resource"]
    assert (first["resource"]["nv.dl.rank"], first["resource"]["nemo.run.id"]) == (1, "run-1")


def test_a_hosts_own_providers_stay_the_hosts(written: Written) -> None:
    """Lens attaches to a host's providers: ids, sampler, resource, exporters, metrics and open spans stay the host's.

    One processor serves both runs, only spans started through Lens are closed at its shutdown, and one WARNING says
    whose ids, sampler and resource hold.
    """
    ended = run("shared", "host", environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert len(warnings_of(ended.stderr, "tracer provider of its own")) == 1, ended.stderr
    assert ended.all_facts("host_span_open") == [True, True]
    assert ended.all_facts("host_exporter_open") == [True, True]
    assert ended.fact("providers_kept")
    assert ended.fact("processors") == 2

    # In Lens' files: what ended while a run was on, once; nothing from before, between and after.
    lens = ["lens 1", "lens 2", "lens open 1", "lens open 2"]
    assert written.names() == lens
    for name in lens:
        span = written.span(name)
        assert (span["resource"]["service.name"], span["resource"]["host.owned"]) == ("host", True)
        assert int(span["span_id"], 16) < 100
        assert ("nemo.span.truncated" in span["attributes"]) == ("open" in name)
    assert len({span["trace_id"] for span in written.spans()}) == 2

    # At the host: everything, the truncated ones too, once.
    host = [f"host {when} {number}" for when in ("before", "open", "after") for number in (1, 2)]
    assert sorted(ended.fact("seen")) == sorted([*lens, *host])
    assert ended.fact("host_metrics") == ["host.counter"]
    assert [point["value"] for point in written.points() if point["name"] == "lens.counter"] == [1, 1]  # one a run
    assert written.totals("host.counter") == {}
    assert ended.fact("host_logs") == ["1" * 9000, "2" * 9000]
    assert [log["body"] for log in written.logs()] == ["1" * 8192, "2" * 8192]


def test_a_second_run_reaches_tracers_of_the_first(written: Written) -> None:
    """After a shutdown a new set-up works: tracers, instruments and loggers from before feed it, under its resource.

    What happens between the runs is sent by neither, and counters start anew; a sampler set in between is ignored with
    one WARNING.
    """
    ended = run("shared", "again", environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert (ended.fact("same_provider"), ended.fact("exporting")) == (True, True)
    assert written.names() == ["first", "second", "second by first's", "second by helper", "second still"]
    for span in written.spans():
        expected = (1, "run-1-rank1") if span["name"] == "first" else (2, "run-2-rank2")
        assert (span["resource"]["nv.dl.rank"], span["resource"]["service.instance.id"]) == expected
    assert {log["body"]: log["resource"]["nemo.run.id"] for log in written.logs()} == {
        "first": "run-1",
        "second": "run-2",
    }
    done = {(point["resource"]["nemo.run.id"], point["value"]) for point in written.points() if point["name"] == "done"}
    assert done == {("run-1", 1), ("run-2", 3)}
    assert len(warnings_of(ended.stderr, "OTEL_TRACES_SAMPLER")) == 1, ended.stderr


def test_a_set_up_can_replace_the_live_one(written: Written) -> None:
    """``_allow_reinit`` finishes the live run, whose spans are delivered, and starts another."""
    ended = run("shared", "reinit", environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert (ended.fact("first"), ended.fact("second")) == (False, True)
    assert {span["name"]: span["resource"]["nv.dl.rank"] for span in written.spans()} == {"first": 1, "second": 2}


@pytest.mark.parametrize("value", ["config", "true", " TRUE ", "True\n"])
def test_a_disabled_set_up_touches_nothing(written: Written, value: str) -> None:
    """Off, by configuration or ``OTEL_SDK_DISABLED``: no third-party module, no thread, no group, no global provider.

    The application can then install its own provider, and a later set-up that is on works with it.
    """
    environ = {} if value == "config" else {"OTEL_SDK_DISABLED": value}
    ended = run(
        "shared", "disabled", "config" if value == "config" else "variable", environ={**written.environ, **environ}
    )
    assert ended.code == 0, ended.stderr
    assert ended.fact("span")
    assert (ended.fact("exporting"), ended.fact("groups"), ended.fact("threads")) == (False, [], 1)
    assert ended.fact("modules") == []
    assert ended.fact("slot_was_free")
    assert ended.fact("later")
    assert written.names() == ["on"]


def test_a_failed_set_up_leaves_nothing_and_can_be_repeated(written: Written) -> None:
    """A setting that cannot work is one ValueError naming it: no thread, provider or group is left, a retry works."""
    ended = run("shared", "half_built", environ=written.environ)
    assert ended.code == 0, ended.stderr
    attempts = [fact for fact in ended.facts if "bad" in fact]
    assert len(attempts) == 12
    for attempt in attempts:
        assert attempt["bad"] in attempt["message"], attempt
        assert (attempt["threads"], attempt["left"]) == (1, []), attempt
    assert ended.fact("exporting")
    assert written.names() == ["after all"]


def test_a_variable_that_opentelemetry_reads_at_import(written: Written) -> None:
    """Wrong in the environment of the process, it is the same ValueError naming it, and the right value works."""
    environ = {**written.environ, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"}
    ended = run("shared", "read_at_import", environ=environ)
    assert ended.code == 0, ended.stderr
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT='many'" in ended.fact("message")
    assert ended.fact("threads") == 1
    assert ended.fact("exporting")


@pytest.mark.parametrize("protocol", ["file", "grpc", "http/protobuf"])
def test_many_runs_leave_no_survivor(written: Written, otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """After 100 set-ups and shutdowns no thread, open file or object of theirs is left, but for the last run's."""
    environ = written.environ if protocol == "file" else otlp_receiver.environ(protocol)
    ended = run("shared", "many_runs", 100, environ=environ)
    assert ended.code == 0, ended.stderr
    assert ended.fact("made") == 400
    assert ended.fact("alive") <= 4
    assert ended.fact("threads") == []
    early, late = ended.fact("descriptors")
    assert late <= early + 2
    sent = written.spans() if protocol == "file" else otlp_receiver.spans()
    assert sorted(span["name"] for span in sent) == sorted(f"run {number}" for number in range(100))


def test_many_runs_with_numbers_and_logs_leave_no_survivor(written: Written) -> None:
    """After 100 runs, each with a metric group, a callback and a logging bridge of its own, nothing of them is left.

    Not even what the callbacks belonged to. Each run's numbers and records arrive once, those after it in none.
    """
    runs = 100
    ended = run("shared", "many_runs_with_numbers", runs, environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert ended.stderr == ""
    assert ended.fact("made") == 6 * runs
    # The last run's handle and pipes: get_telemetry and the thread that ended last have them.
    assert ended.fact("alive") <= 4
    assert (ended.fact("threads"), ended.fact("restored"), ended.fact("handlers")) == ([], True, 0)
    assert ended.fact("grown") < 5000
    points = written.points()
    assert [point["value"] for point in points if point["name"] == "done"] == [1] * runs
    assert [point["value"] for point in points if point["name"] == "spread"] == list(range(runs))
    assert [point["value"] for point in points if point["name"] == "size"] == [7] * runs
    assert sorted(log["body"] for log in written.logs()) == sorted(
        [*(f"run {number}" for number in range(runs)), *(f"part of run {number}" for number in range(runs))]
    )
