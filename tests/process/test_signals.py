"""SIGTERM with the handler installed, and Ctrl-C: what is delivered, and how the process dies."""

from __future__ import annotations

import signal
import time

import pytest
from process_runs import Finished, Running, Written, hanging_endpoint, run, warnings_of

from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(60)

TRUNCATED, REASON = "nemo.span.truncated", "nemo.span.truncated.reason"


def signalled(
    scenario: str, *args: object, environ: dict[str, str], number: signal.Signals = signal.SIGTERM
) -> Finished:
    """Run a scenario and send the signal once it waits for one."""
    job = Running("lives", scenario, *args, environ=environ)
    job.wait_until("ready")
    job.send(number)
    return job.finish()


def check_flushed(written: Written, reason: str) -> None:
    """All three signals and the truncated open spans are there."""
    assert written.names() == ["done", "run", "step"]
    assert list(written.totals("done").values()) == [2]
    assert [log["body"] for log in written.logs()] == ["done"]
    for name in ("run", "step"):
        span = written.span(name)
        assert span["attributes"][TRUNCATED] is True
        assert span["events"][0]["attributes"] == {REASON: reason}


def test_sigterm_flushes_and_then_kills(written: Written) -> None:
    """All signals and the open spans are delivered, then the default action ends the process: code -15."""
    ended = signalled("terminated", environ=written.environ)
    assert ended.code == -signal.SIGTERM, ended.stderr
    check_flushed(written, "SIGTERM")
    assert ended.stderr == ""


def test_sigterm_goes_on_to_the_applications_handler(written: Written) -> None:
    """A handler that was there before is called once, after the flush, and decides how process and spans end."""
    ended = signalled("terminated_with_handler", environ=written.environ)
    assert ended.code == 5, ended.stderr
    assert ended.all_facts("own") == [signal.SIGTERM]
    assert ended.fact("delivered") is True
    assert written.names() == ["done", "run", "step"]
    for name in ("run", "step"):
        assert TRUNCATED not in written.span(name)["attributes"]


def test_a_job_that_handles_sigterm_is_recorded_to_its_end(written: Written) -> None:
    """Where SIGTERM only sets a flag, spans, numbers and records after it are delivered, as often as it comes."""
    ended = run("lives", "terminated_with_flag", environ=written.environ)
    assert (ended.code, ended.stderr) == (0, "")
    assert (ended.fact("exporting"), ended.fact("delivered")) == (True, True)
    assert written.names() == ["checkpoint", "done", "run"]
    assert not any(TRUNCATED in span["attributes"] for span in written.spans())
    assert list(written.totals("done").values()) == [3]
    assert [log["body"] for log in written.logs()] == ["done", "checkpoint"]


def test_sigterm_delivers_the_last_numbers_and_records(written: Written) -> None:
    """Every kind of metric, the observable ones observed a last time, and a record of ``logging`` arrive, once."""
    ended = signalled("numbers_terminated", environ=written.environ)
    assert (ended.code, ended.stderr) == (-signal.SIGTERM, "")
    for kind in ("gauge", "histogram", "counter", "up_down_counter"):
        assert list(written.totals(kind).values()) == [3], kind
    for kind in ("observable_gauge", "observable_counter", "observable_up_down_counter"):
        assert list(written.totals(kind).values()) == [7], kind
    assert [log["body"] for log in written.logs()] == ["logged"]


def test_an_ignored_sigterm_stays_ignored(written: Written) -> None:
    """Where SIGTERM is ignored the process goes on and so does telemetry; a second SIGTERM waits for nothing."""
    ended = run("lives", "terminated_and_goes_on", environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert written.names() == ["after", "done"]
    assert max(ended.all_facts("signal_s")) < 5


def test_a_handled_sigterm_that_comes_again_waits_for_nothing_more() -> None:
    """However often SIGTERM comes while a flush hangs, the application's handler is called, and its code goes on."""
    with hanging_endpoint() as endpoint:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        ended = run("lives", "terminated_often", environ={**environ, "NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "100"})
    assert ended.code == 0, ended.stderr
    assert ended.fact("noted_in_the_storm") is True


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_sigterm_does_not_wait_for_a_hanging_collector(protocol: str) -> None:
    """The handler gives up after its own timeout, and the process dies of SIGTERM."""
    with hanging_endpoint() as endpoint:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        job = Running("lives", "terminated", 500, environ=environ)
        job.wait_until("ready")
        sent_at = job.send(signal.SIGTERM)
        ended = job.finish()
    assert ended.code == -signal.SIGTERM, ended.stderr
    assert ended.ended_at - sent_at < 0.5 + 0.5 + 1.0  # the timeout, its allowance, and the end of the process


def test_sigterm_in_a_shutdown_lets_it_finish(otlp_receiver: OtlpReceiver) -> None:
    """A SIGTERM in the middle of ``shutdown`` waits for it: what was under way is delivered."""
    otlp_receiver.delay(0.7)
    job = Running("lives", "terminated_in_shutdown", environ=otlp_receiver.environ("http/protobuf"))
    job.wait_until("ready")
    time.sleep(0.3)  # until it is in the middle of it
    job.send(signal.SIGTERM)
    ended = job.finish()
    assert ended.code == -signal.SIGTERM, ended.stderr
    assert [span["name"] for span in otlp_receiver.spans()] == ["done"]
    assert [point["value"] for point in otlp_receiver.points() if point["name"] == "done"] == [2]
    assert [log["body"] for log in otlp_receiver.logs()] == ["done"]


@pytest.mark.parametrize("scenario", ["terminated", "terminated_in_shutdown"])
def test_sigterm_says_what_was_lost(scenario: str) -> None:
    """With a collector that hangs, the loss is told before the process dies, also in the middle of a shutdown."""
    with hanging_endpoint() as endpoint:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        job = Running("lives", scenario, 3000, environ=environ)
        job.wait_until("ready")
        time.sleep(0.3)  # until it is in the middle of it
        job.send(signal.SIGTERM)
        ended = job.finish()
    assert ended.code == -signal.SIGTERM, ended.stderr
    assert len(warnings_of(ended.stderr, "spans were dropped")) == 1, ended.stderr
    assert len(warnings_of(ended.stderr, "1 log records were dropped")) == 1, ended.stderr


@pytest.mark.parametrize("given", ["None", "inf", "nan", "-1", "word"])
def test_any_timeout_leaves_a_sigterm_that_works(written: Written, given: str) -> None:
    """A timeout that is none, or no number, is the default, and one out of bounds the nearest: SIGTERM still kills."""
    ended = signalled("terminated_by_timeout", given, environ=written.environ)
    assert ended.code == -signal.SIGTERM, ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(warnings_of(ended.stderr, "no number of milliseconds")) == (given in ("nan", "word"))
    if given != "-1":
        check_flushed(written, "SIGTERM")


def test_ctrl_c_ends_the_waiting_of_a_shutdown() -> None:
    """Ctrl-C while ``shutdown`` waits for a collector that hangs ends the process now, with the loss told."""
    with hanging_endpoint() as endpoint:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        job = Running("lives", "interrupted_in_shutdown", environ=environ)
        job.wait_until("ready")
        time.sleep(0.5)  # until it waits
        sent_at = job.send(signal.SIGINT)
        ended = job.finish()
    assert ended.code == -signal.SIGINT, ended.stderr
    assert ended.ended_at - sent_at < 5
    assert len(warnings_of(ended.stderr, "1 spans were dropped")) == 1


def test_sigterm_delivers_what_is_queued_though_a_span_is_locked(written: Written) -> None:
    """When the interrupted code holds a span's lock, that span is lost and nothing else, within the timeout."""
    ended = signalled("terminated_in_lock", environ=written.environ)
    assert ended.code == -signal.SIGTERM, ended.stderr
    assert written.names() == ["done"]


def test_shutdown_gives_sigterm_back() -> None:
    """Shutdown restores the handler from before, leaves one that came later, and only the main thread installs one."""
    ended = run("lives", "gives_sigterm_back", environ={"NEMO_LENS_EXPORTER": "console"})
    assert ended.code == 0, ended.stderr
    assert (ended.fact("restored"), ended.fact("kept"), ended.fact("untouched")) == (True, True, True)
    assert len(warnings_of(ended.stderr, "install_sigterm_handler works in the main thread only")) == 1


def test_ctrl_c_delivers_what_was_done(written: Written) -> None:
    """SIGINT ends the run as Python does, with a KeyboardInterrupt; its spans say that they were interrupted."""
    ended = signalled("interrupted", environ=written.environ, number=signal.SIGINT)
    assert ended.code == -signal.SIGINT, ended.stderr
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")
    assert written.names() == ["done", "run", "step"]
    assert list(written.totals("done").values()) == [2]
    for name in ("run", "step"):
        span = written.span(name)
        assert span["attributes"] == {"nemo.span.interrupted": "KeyboardInterrupt"}
        assert (span["status"], span["events"]) == (0, [])
