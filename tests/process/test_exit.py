"""What is delivered by a process that ends without a shutdown, and what its end looks like."""

from __future__ import annotations

import pytest
from process_runs import Finished, Written, hanging_endpoint, run

from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(60)

ERROR = 2
TRUNCATED, REASON = "nemo.span.truncated", "nemo.span.truncated.reason"


def check_all_signals(ended: Finished, written: Written) -> None:
    """The finished span, the last measurement and the last log record are there, once."""
    assert written.names().count("done") == 1, ended.stderr
    assert list(written.totals("done").values()) == [2]
    assert [log["body"] for log in written.logs()] == ["done"]


@pytest.mark.parametrize(
    ("scenario", "arguments", "code", "spans"),
    [
        ("falls_off", (), 0, []),
        ("exits_in_span", (0,), 0, ["inner", "outer"]),
        ("exits_in_span", (3,), 3, ["inner", "outer"]),
        ("raises", (), 1, ["inner", "outer"]),
        ("leaves_spans_open", (), 0, ["epoch", "in thread", "run", "step"]),
        ("outlived_by_thread", (), 0, ["exiting thread", "late"]),
        ("works_at_exit", (), 0, ["at exit"]),
        ("os_exit_after_flush", (), 7, []),
    ],
)
def test_everything_is_delivered_without_a_shutdown(
    written: Written, scenario: str, arguments: tuple[int, ...], code: int, spans: list[str]
) -> None:
    """All three signals arrive once, and the process ends with its own exit code and without a word of ours."""
    ended = run("lives", scenario, *arguments, environ=written.environ)
    assert ended.code == code, ended.stderr
    check_all_signals(ended, written)
    assert written.names() == sorted(["done", *spans])
    if scenario == "raises":
        assert ended.stderr.startswith("Traceback")
        assert ended.stderr.rstrip().endswith("RuntimeError: loss is not finite")
        assert "nemo_lens" not in ended.stderr
    else:
        assert ended.stderr == ""


def check_numbers(written: Written) -> None:
    """The last value of each kind of metric, what the observable ones observe then, and the record are there, once."""
    recorded = {"gauge": 3, "histogram": 3, "counter": 3, "up_down_counter": 3}
    observed = dict.fromkeys(("observable_gauge", "observable_counter", "observable_up_down_counter"), 7)
    expected = {**recorded, **observed}
    assert {name: list(written.totals(name).values()) for name in expected} == {
        name: [value] for name, value in expected.items()
    }
    assert [log["body"] for log in written.logs()] == ["logged"]


def test_last_numbers_and_records_are_delivered_at_exit(written: Written) -> None:
    """Every kind of metric, observable ones by a callback that runs at exit, and a record of ``logging`` arrive.

    Python 3.12 and later start no more threads then.
    """
    ended = run("lives", "numbers_fall_off", environ=written.environ)
    assert (ended.code, ended.stderr) == (0, "")
    check_numbers(written)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_what_is_logged_at_exit_is_delivered(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """Records of atexit functions arrive once, of those too that were registered before the set-up and so come last."""
    ended = run("lives", "logs_at_exit", environ=otlp_receiver.environ(protocol))
    assert (ended.code, ended.stderr) == (0, "")
    before = [f"registered before, {number}" for number in (2, 1, 0)]
    assert [log["body"] for log in otlp_receiver.logs()] == ["last line", "registered after", *before]


def test_logging_at_exit_is_bounded() -> None:
    """A collector that hangs holds all that is logged at exit up for the shutdown's timeout, in all, and no longer."""
    with hanging_endpoint() as endpoint:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        ended = run("lives", "logs_at_exit", 700, environ=environ)
    assert ended.code == 0, ended.stderr
    assert ended.fact("ended") - ended.fact("ending") < 0.7 + 0.5
    assert ended.ended_at - ended.fact("ending") < 0.7 + 0.5 + 1.0
    assert "Traceback" not in ended.stderr


def test_what_is_logged_after_a_shutdown_is_not_sent(written: Written) -> None:
    """The application's own shutdown is the end: what is logged later, also at exit, is sent by nobody and no error."""
    ended = run("lives", "logs_after_shutdown", environ=written.environ)
    assert (ended.code, ended.stderr) == (0, "")
    assert [log["body"] for log in written.logs()] == ["before"]


def test_an_uncaught_exception_is_on_its_span(written: Written) -> None:
    """The failed spans have ERROR and the description; the exception is recorded once, on the innermost."""
    run("lives", "raises", environ=written.environ)
    inner, outer = written.span("inner"), written.span("outer")
    for span in (inner, outer):
        assert (span["status"], span["description"]) == (ERROR, "RuntimeError: loss is not finite")
        assert TRUNCATED not in span["attributes"]
    assert [event["name"] for event in inner["events"]] == ["exception"]
    assert outer["events"] == []


@pytest.mark.parametrize(("code", "interrupted"), [(0, None), (3, "SystemExit")])
def test_sys_exit_in_a_span_is_no_error(written: Written, code: int, interrupted: str | None) -> None:
    """A clean exit leaves nothing on the span; one with a code says that it was interrupted, without ERROR."""
    run("lives", "exits_in_span", code, environ=written.environ)
    for name in ("inner", "outer"):
        span = written.span(name)
        assert (span["status"], span["events"]) == (0, [])
        assert span["attributes"].get("nemo.span.interrupted") == interrupted


def test_open_spans_are_closed_innermost_first_and_marked(written: Written) -> None:
    """Spans open at exit, of any thread, are ended innermost first, marked, with an event that says why."""
    run("lives", "leaves_spans_open", environ=written.environ)
    assert [span["name"] for span in written.spans()][-4:] == ["in thread", "step", "epoch", "run"]
    for name in ("in thread", "step", "epoch", "run"):
        span = written.span(name)
        assert span["attributes"][TRUNCATED] is True
        assert [(event["name"], event["attributes"]) for event in span["events"]] == [(TRUNCATED, {REASON: "exit"})]
    assert TRUNCATED not in written.span("done")["attributes"]
    ends = [written.span(name)["end"] for name in ("step", "epoch", "run")]
    assert ends == sorted(ends)


def test_a_second_shutdown_does_not_cut_the_first_off(otlp_receiver: OtlpReceiver) -> None:
    """A second ``shutdown`` with less time returns in its own time; the first one delivers in its."""
    otlp_receiver.delay(0.5)
    ended = run("lives", "two_shutdowns", environ=otlp_receiver.environ("http/protobuf"))
    assert (ended.code, ended.stderr) == (0, "")
    assert [span["name"] for span in otlp_receiver.spans()] == ["done"]
    assert [log["body"] for log in otlp_receiver.logs()] == ["done"]


def test_after_a_shutdown_nothing_is_sent_and_nothing_complains(written: Written) -> None:
    """What goes on after a shutdown is silent; the span it was called in is delivered as truncated, once."""
    ended = run("lives", "shuts_down_in_span", environ=written.environ)
    assert ended.code == 0, ended.stderr
    check_all_signals(ended, written)
    assert written.names() == ["around", "done"]
    event = written.span("around")["events"][0]
    assert event["attributes"] == {REASON: "shutdown"}
    assert "after" not in written.totals("after")
    assert (ended.fact("exporting"), ended.fact("flushed")) == (False, True)
    assert ended.stderr == ""
