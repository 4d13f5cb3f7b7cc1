"""The job's console logs are the same with the logging bridge as without it, and its records arrive."""

from __future__ import annotations

from collections import Counter

import pytest
from process_runs import Running, Written, refusing_endpoint, run, warnings_of

from support.otlp_decode import logs_of
from support.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(60)

WARNING, EARLY = "warning 7", "of a logger from before"
# What each scenario sends; the root logger stays at WARNING where nothing is configured.
SENT = {
    "nothing": [WARNING, EARLY],
    "basic_config": ["info", WARNING, EARLY],
    "basic_config_force": ["before", "info", WARNING, EARLY],
    "implicit_basic_config": ["by the module's function", WARNING, EARLY],
    "dict_config": [],  # it disables the loggers that there are
    "dict_config_keeping_loggers": ["info", WARNING, EARLY],
    "file_config": [],
    "handlers_replaced": ["info", WARNING, EARLY],
    "handlers_cleared": ["info", WARNING, EARLY],
    "shut_down": ["info", WARNING, EARLY],
    "no_last_resort": [WARNING, EARLY],
    "failing_handlers": ["%d steps", "%d steps", "info", WARNING, EARLY],
    "shown_warnings": ["step 0", "step 1", "step 2", "info", WARNING, EARLY],
    "threads": ["from thread 0", "from thread 1", "from thread 2", "info", WARNING, EARLY],
    "exceptions": ["it failed", "info", WARNING, EARLY],
}


@pytest.mark.parametrize("scenario", [*SENT, "captured_warnings"])
def test_the_console_is_the_same(written: Written, scenario: str) -> None:
    """Whatever configures ``logging`` after set-up, standard error is the same byte for byte, and the records arrive.

    So are the root logger's handlers and level; a warning without any handler still reaches standard error.
    """
    plain = run("console_logs", "configured", scenario, "plain", environ=written.environ)
    bridged = run("console_logs", "configured", scenario, "bridged", environ=written.environ)
    assert plain.code == bridged.code == 0, plain.stderr + bridged.stderr
    assert bridged.stderr == plain.stderr
    assert bridged.facts == plain.facts
    bodies = [record["body"] for record in written.logs()]
    if scenario == "captured_warnings":
        assert sum("of the application" in body for body in bodies) == 1
    else:
        assert bodies == SENT[scenario]
    if scenario == "nothing":
        assert plain.stderr == f"{WARNING}\n{EARLY}\n"
    if scenario == "failing_handlers":
        assert plain.stderr.count("--- Logging error ---") == 2
        assert "nemo_lens" not in bridged.stderr
    if "warnings" in scenario:
        assert plain.stderr.count("UserWarning: of the application") == 1


def test_records_left_at_exit_are_sent(written: Written) -> None:
    """A process that ends without a word sends what it logged, each record once."""
    ended = run("console_logs", "left_at_exit", environ=written.environ)
    assert (ended.code, ended.stderr) == (0, "")
    assert [record["body"] for record in written.logs()] == [f"record {number}" for number in range(700)]


def test_what_is_logged_when_the_interpreter_ends(written: Written) -> None:
    """A finalizer that logs, flushes and shuts down when the export thread runs no more waits for nothing."""
    ended = run("console_logs", "logs_when_deleted", 20_000, environ=written.environ)
    assert (ended.code, ended.stderr) == (0, "kept\ndeleted\n")
    assert ended.fact("deletion_s") < 10
    assert [record["body"] for record in written.logs()] == ["kept"]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_failing_exporter_feeds_nothing_back(otlp_receiver: OtlpReceiver, protocol: str) -> None:
    """With everything at DEBUG on the root logger, a collector that fails first gets each record once, and no other.

    The exporter's own records of its failures are not among them, and every call returns.
    """
    otlp_receiver.refuse()
    job = Running("console_logs", "failing_collector", environ=otlp_receiver.environ(protocol))
    job.wait_until("failed")
    otlp_receiver.accept()
    job.go_on()
    ended = job.finish()
    assert ended.code == 0, ended.stderr
    assert ended.fact("confirmed") is False
    assert ended.fact("done")
    attempted = {record["body"] for request in otlp_receiver.requests("logs") for record in logs_of(request.payload)}
    own = {f"{when} {number}" for when in ("while it fails", "afterwards") for number in range(5)}
    assert attempted == own
    arrived = Counter(record["body"] for record in otlp_receiver.logs())
    assert arrived == Counter(own), "the exporter's retries delivered what was logged first, and nothing came twice"


def test_a_dead_collector_feeds_nothing_back() -> None:
    """Where nothing listens at all, what is lost is what the job logged, to the number, and the process ends."""
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": refusing_endpoint(),
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    job = Running("console_logs", "failing_collector", environ=environ)
    job.wait_until("failed")
    job.go_on()
    ended = job.finish()
    assert ended.code == 0, ended.stderr
    assert ended.fact("done")
    assert len(warnings_of(ended.stderr, "10 log records were dropped")) == 1, ended.stderr


def test_no_deadlock_with_a_lock_of_the_exporter() -> None:
    """Eight threads log through a host's exporter that fails, and logs, while it holds a lock: all of them return.

    Each of their records is offered once, and the exporter's own are not.
    """
    ended = run("console_logs", "lock_of_an_exporter")
    assert ended.code == 0, ended.stderr
    assert ended.fact("hanging") == 0
    assert (ended.fact("exported"), ended.fact("distinct")) == (400, 400)


def test_on_a_hosts_own_provider(written: Written) -> None:
    """Records go to the application's provider without Lens, to both with it, and never twice to either."""
    ended = run("console_logs", "host_provider", environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert ended.fact("host") == ["host alone", "both", "both, with the host's handler", "host after"]
    assert [record["body"] for record in written.logs()] == ["both", "both, with the host's handler"]


def test_between_runs_records_go_nowhere(written: Written) -> None:
    """A bridge of the application's outlives a run; the next run with logs has its records again."""
    ended = run("console_logs", "after_the_run", environ=written.environ)
    assert ended.code == 0, ended.stderr
    assert [record["body"] for record in written.logs()] == ["first run", "last run"]
    assert (ended.fact("between"), ended.fact("without_logs")) == (True, True)
    assert len(warnings_of(ended.stderr, "NEMO_LENS_LOGS_ENABLED=1")) == 1, ended.stderr
