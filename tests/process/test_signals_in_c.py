"""SIGTERM while the main thread is in a C call, as a collective is: no handler runs, and the flush and the end come."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
from process_runs import Finished, Running, Written, hanging_endpoint, run, warnings_of

pytestmark = pytest.mark.timeout(60)


def terminated(scenario: str, *args: object, environ: dict[str, str]) -> Finished:
    """Run a scenario and send SIGTERM once its main thread is in C."""
    job = Running("in_c", scenario, *args, environ=environ)
    job.wait_until("ready")
    job.send(signal.SIGTERM)
    return job.finish()


def eventually(holds: Callable[[], bool]) -> bool:
    """Return whether something holds within 20 seconds."""
    deadline = time.monotonic() + 20
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_c_call_that_never_ends_is_flushed_and_ended(written: Written) -> None:
    """All signals and the open spans are delivered, and the process dies of SIGTERM as it does without telemetry."""
    ended = terminated("terminated", environ=written.environ)
    assert (ended.code, ended.stderr) == (-signal.SIGTERM, "")
    assert written.names() == ["done", "run", "step"]
    assert list(written.totals("done").values()) == [2]
    assert [log["body"] for log in written.logs()] == ["done"]
    for name in ("run", "step"):
        assert written.span(name)["events"][0]["attributes"] == {"nemo.span.truncated.reason": "SIGTERM"}


def test_a_collector_that_hangs_keeps_no_process_in_a_c_call() -> None:
    """The end comes within the handler's own timeout, and the loss is said before it."""
    with hanging_endpoint() as endpoint:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        ended = terminated("terminated", 1000, environ=environ)
    assert ended.code == -signal.SIGTERM, ended.stderr
    assert len(warnings_of(ended.stderr, "3 spans were dropped")) == 1


def test_a_lock_that_the_c_call_holds_does_not_keep_the_process(written: Written) -> None:
    """When the thread that flushes waits for the lock of a span, the end comes all the same, and so does the rest."""
    ended = terminated("terminated_in_lock", environ=written.environ)
    assert ended.code == -signal.SIGTERM, ended.stderr
    assert written.names() == ["done"]


def test_an_application_that_handles_sigterm_is_flushed_in_a_c_call(written: Written) -> None:
    """What has ended arrives while the call lasts; the handler runs after it, and telemetry goes on to the end."""
    job = Running("in_c", "terminated_with_handler", environ=written.environ)
    job.wait_until("ready")
    job.send(signal.SIGTERM)
    assert eventually(lambda: written.names() == ["done"])
    job.go_on()
    ended = job.finish()
    assert (ended.code, ended.stderr) == (0, "")
    assert (ended.all_facts("own"), ended.fact("went_on")) == ([signal.SIGTERM], True)
    assert written.names() == ["done", "run"]
    assert "nemo.span.truncated" not in written.span("run")["attributes"]


def test_other_signals_neither_flush_nor_end_the_process(written: Written) -> None:
    """A signal that is not SIGTERM meets its own handler and nothing else."""
    job = Running("in_c", "other_signal", environ=written.environ)
    job.wait_until("ready")
    job.send(signal.SIGUSR1)
    job.go_on()
    ended = job.finish()
    assert (ended.code, ended.stderr) == (0, "")
    assert (ended.all_facts("own"), ended.fact("went_on")) == ([signal.SIGUSR1], True)
    assert written.names() == ["done", "run"]


@pytest.mark.parametrize("first", ["loop", "ours"])
def test_an_event_loop_hears_its_signals(written: Written, first: str) -> None:
    """An event loop, there before or come later, hears of its signals; SIGTERM flushes and ends the process."""
    ended = run("in_c", "beside_event_loop", first, environ=written.environ)
    assert (ended.code, ended.stderr) == (-signal.SIGTERM, "")
    assert ended.fact("heard") is True
    assert written.names() == ["done", "run"]


def test_shutdown_gives_the_wakeup_descriptor_back() -> None:
    """After a shutdown it is nobody's, or still that of who took it since, and no thread is left to wait on ours."""
    ended = run("in_c", "gives_wakeup_back", environ={"NEMO_LENS_EXPORTER": "console"})
    assert ended.code == 0, ended.stderr
    assert (ended.fact("left"), ended.fact("kept"), ended.fact("threads")) == (-1, True, 1)


def test_a_shutdown_in_another_thread_leaves_sigterm_able_to_end_the_process(written: Written) -> None:
    """Where SIGTERM could not be given back, it still ends a process whose main thread is in C."""
    ended = terminated("shut_down_elsewhere", environ=written.environ)
    assert (ended.code, ended.stderr) == (-signal.SIGTERM, "")
    assert written.names() == ["done"]


def test_signals_of_forked_children_are_their_own(written: Written) -> None:
    """A child's SIGTERM does not wake the parent, and a child that installs the handler is ended in its own C call."""
    job = Running("in_c", "children", environ=written.environ)
    job.wait_until("ready")
    time.sleep(0.3)  # a parent that took its children's signals for its own would be gone
    job.send(signal.SIGTERM)
    ended = job.finish()
    assert ended.code == -signal.SIGTERM, ended.stderr
    assert (ended.fact("childs_wakeup"), ended.fact("ended")) == (-1, [3, -signal.SIGTERM])
    assert written.names() == ["child", "done", "parent"]
    assert written.span("parent")["attributes"]["nemo.span.truncated"] is True
