"""The limit on what an exporter logs: what a kind is, what passes after the pause, and that nothing else changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk.exporters import plan_exporter
from nemo_lens.sdk.exporters.log_throttle import MAX_KINDS, PAUSE_S, LogThrottle, throttle_log_of


class _Exporter:
    """In a module as if of OpenTelemetry's, whose lines are limited."""

    __module__ = "opentelemetry.exporter.otlp.example"


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class _Log:
    """A logger whose lines are limited on a clock that only a test moves."""

    def __init__(self) -> None:
        throttle_log_of(_Exporter)
        self.now = 1000.0
        self.lines = _Lines()
        self.logger = logging.getLogger(_Exporter.__module__)
        self.throttle = LogThrottle(clock=lambda: self.now)

    def fail(self, template: Any, *args: object, level: int = logging.WARNING) -> None:
        """Log, always in the same place, as in an export."""
        with self.throttle.applied():
            self.logger.log(level, template, *args)

    def taken(self) -> list[str]:
        """Return what was said since the last time."""
        said, self.lines.said = self.lines.said, []
        return said


@pytest.fixture
def log() -> Iterator[_Log]:
    """Give the logger."""
    log = _Log()
    log.logger.addHandler(log.lines)
    yield log
    log.logger.removeHandler(log.lines)


def test_a_line_passes_and_the_next_after_the_pause_says_how_many_did_not(log: _Log) -> None:
    """Texts that differ are of one kind; the number stands behind the message, whose own arguments are as they were."""
    for delay in (1.1, 1.9, 4.2):
        log.fail("50%% of %s: retrying in %.2fs", "spans", delay)
    assert log.taken() == ["50% of spans: retrying in 1.10s"]
    log.now += PAUSE_S - 1
    log.fail("50%% of %s: retrying in %.2fs", "spans", 1.0)
    assert log.taken() == []
    log.now += 1
    log.fail("50%% of %s: retrying in %.2fs", "spans", 2.0)
    assert log.taken() == ["50% of spans: retrying in 2.00s (left out since the last line like this: 3)"]
    log.now += PAUSE_S
    log.fail("50%% of %s: retrying in %.2fs", "spans", 3.0)
    assert log.taken() == ["50% of spans: retrying in 3.00s"]


@pytest.mark.parametrize(
    ("template", "args", "said"),
    [
        ("100% of a batch", (), "100% of a batch"),
        ("%(kind)s batch", ({"kind": "100%"},), "100% batch"),
        (ValueError("100%"), (), "100%"),
    ],
)
def test_any_form_of_message_can_say_how_many(log: _Log, template: Any, args: tuple[Any, ...], said: str) -> None:
    """Messages without arguments, with a dictionary of them, and that are no text."""
    log.fail(template, *args)
    log.fail(template, *args)
    log.now += PAUSE_S
    log.fail(template, *args)
    assert log.taken() == [said, f"{said} (left out since the last line like this: 1)"]


def test_another_cause_is_another_kind(log: _Log) -> None:
    """A status, an exception's class or a level that is new is said at once; a new address or size is not."""
    causes: list[object] = [
        503,
        401,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNAUTHENTICATED,
        OSError(1),
        ValueError(),
    ]
    for _ in range(2):
        for cause in causes:
            log.fail("failed: %r", cause)
    assert log.taken() == [f"failed: {cause!r}" for cause in causes]
    log.fail("failed: %r", OSError(2))
    log.fail("failed: %r", 503, level=logging.ERROR)
    assert log.taken() == ["failed: 503"]
    log.fail("failed: %r", "a")
    log.fail("failed: %r", "b")
    log.fail("failed: %r", 70_000_000)
    assert log.taken() == ["failed: 'a'"]


def test_kinds_without_end_are_a_bounded_number_of_lines(log: _Log) -> None:
    """What is beyond the known kinds shares one."""
    for status in range(100, 600):
        log.fail("failed: %d", status)
    assert len(log.taken()) == MAX_KINDS + 1
    log.now += PAUSE_S
    log.fail("failed: %d", 599)
    (line,) = log.taken()
    assert line == f"failed: 599 (left out since the last line like this: {500 - MAX_KINDS - 1})"


def test_each_exporter_has_a_limit_of_its_own(log: _Log) -> None:
    """One that fails hides nothing of another one."""
    log.fail("failed")
    log.throttle = LogThrottle()
    log.fail("failed")
    assert log.taken() == ["failed", "failed"]


def test_what_is_logged_outside_of_an_export_passes(log: _Log, caplog: pytest.LogCaptureFixture) -> None:
    """Lines outside of it, lines of other loggers in it, and those at DEBUG, which somebody has asked for."""
    for _ in range(3):
        log.logger.warning("of the application")
        with log.throttle.applied():
            logging.getLogger("application").warning("of the application")
    assert (len(log.taken()), len(caplog.records)) == (3, 6)
    log.logger.setLevel(logging.DEBUG)
    try:
        for _ in range(3):
            log.fail("connecting", level=logging.DEBUG)
    finally:
        log.logger.setLevel(logging.NOTSET)
    assert len(log.taken()) == 3


def test_a_message_without_a_text_passes(log: _Log) -> None:
    """An object whose ``str`` raises does so where it is printed, as without the limit, and not in the filter."""

    class Unprintable:
        def __str__(self) -> str:
            raise ValueError("no text")

    record = logging.makeLogRecord({"msg": Unprintable(), "levelno": logging.WARNING})
    with log.throttle.applied():
        assert [bool(log.logger.filter(record)) for _ in range(3)] == [True, False, False]
        log.now += PAUSE_S
        assert log.logger.filter(record)


def test_plans_of_exporters_of_opentelemetry_limit_their_loggers_once() -> None:
    """A plan of ours and one by entry point set the limit, any number of them once, and on no parent."""
    name = OTLPSpanExporter.__module__
    for exporter in ("otlp", "otlp", "otlp_proto_http"):
        environ = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        plan_exporter("traces", NemoLensConfig(exporter=exporter), run_id="run", rank=0, environ=environ)
        (limit,) = [each for each in logging.getLogger(name).filters if type(each).__module__.startswith("nemo_lens.")]
    assert limit not in logging.getLogger(name.rpartition(".")[0]).filters
    assert limit not in logging.getLogger("nemo_lens").filters
