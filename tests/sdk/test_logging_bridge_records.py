"""What an exported log record says: body, severity, times, ids, where it comes from, fields, exceptions."""

from __future__ import annotations

import asyncio
import logging
import runpy
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry._logs import NoOpLoggerProvider, SeverityNumber
from opentelemetry.context import Context

from nemo_lens.api import span_cm
from nemo_lens.sdk import log_records
from nemo_lens.sdk.log_destination import Destination
from nemo_lens.sdk.log_records import severity_number
from nemo_lens.sdk.logging_bridge import remove_logging_bridge, setup_logging_bridge
from support.bridged import Bridged, bridging, fresh_logger


@pytest.fixture
def bridged() -> Iterator[Bridged]:
    with bridging() as into:
        yield into


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    with fresh_logger("job.train") as logger:
        yield logger


def test_a_record_says_what_when_where_and_how_severe(bridged: Bridged, log: logging.Logger) -> None:
    """Body, severity, time of the logging call, place in the code and the logger's name arrive."""
    before = time.time_ns()
    log.warning("loss %.2f at step %d", 0.5, 7)
    line = sys._getframe().f_lineno - 1
    record = bridged.record()
    assert record.body == "loss 0.50 at step 7"
    assert (record.severity_number, record.severity_text) == (SeverityNumber.WARN, "WARN")
    assert before - 1_000_000 <= record.timestamp <= time.time_ns()
    assert record.timestamp - 1_000_000 <= record.observed_timestamp <= time.time_ns()
    assert bridged.attributes() == {
        "code.file.path": __file__,
        "code.function.name": "test_a_record_says_what_when_where_and_how_severe",
        "code.line.number": line,
    }
    assert bridged.scopes() == ["job.train"]


def test_a_record_belongs_to_the_current_span(bridged: Bridged, log: logging.Logger) -> None:
    """Inside a span a record has its trace and span id, outside none."""
    with span_cm("step") as span:
        log.info("inside")
        context = span.get_span_context()
    log.info("outside")
    inside, outside = bridged.records()
    assert (inside.trace_id, inside.span_id) == (context.trace_id, context.span_id)
    assert inside.trace_flags == context.trace_flags
    assert (outside.trace_id, outside.span_id) == (0, 0)


@pytest.mark.parametrize(
    ("level", "number"),
    [
        *[(-5, 0), (0, 0), (1, 1), (5, 1), (9, 1)],
        *[(10, 5), (11, 6), (13, 8), (19, 8)],
        *[(20, 9), (25, 12), (30, 13), (35, 16), (40, 17), (49, 20)],
        *[(50, 21), (51, 22), (53, 24), (60, 24), (1000, 24)],
    ],
)
def test_severity_numbers(level: int, number: int) -> None:
    """The named levels are the lowest of their range of the data model, what lies between follows, none leaves it."""
    assert severity_number(level) is SeverityNumber(number)


def test_severity_texts(bridged: Bridged, log: logging.Logger) -> None:
    """Names are OpenTelemetry's for WARNING and CRITICAL, the application's for its own levels, numbers else."""
    logging.addLevelName(25, "NOTICE")
    try:
        for level in (logging.DEBUG, logging.INFO, 25, 27, logging.WARNING, logging.ERROR, logging.CRITICAL):
            log.log(level, "x")
    finally:
        del logging._levelToName[25], logging._nameToLevel["NOTICE"]
    texts = [record.severity_text for record in bridged.records()]
    assert texts == ["INFO", "NOTICE", "Level 27", "WARN", "ERROR", "FATAL"], "the root's bridge starts at INFO"


def test_names_that_cannot_be_encoded_are_mended() -> None:
    """A lone surrogate in a level's or a logger's name is U+FFFD in what any provider is given."""
    logging.addLevelName(45, "level\udc80")
    try:
        record = logging.makeLogRecord({"levelno": 45, "levelname": "painted", "msg": "x"})
        assert log_records.log_fields(record, Context())["severity_text"] == "level\ufffd"
    finally:
        del logging._levelToName[45], logging._nameToLevel["level\udc80"]
    asked: list[str] = []

    class Provider(NoOpLoggerProvider):
        def get_logger(self, name: str, *args: Any, **kwargs: Any) -> Any:
            asked.append(name)
            return super().get_logger(name, *args, **kwargs)

    Destination(Provider()).logger("job\udc80")
    assert asked == ["job\ufffd"]


def test_a_formatter_that_paints_does_not_show(bridged: Bridged, log: logging.Logger) -> None:
    """A console formatter that puts colour into ``levelname`` leaves the exported severity as it is."""

    class Painted(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            record.levelname = f"\x1b[31m{record.levelname}\x1b[0m"
            return super().format(record)

    handler = logging.StreamHandler(stream=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    handler.setFormatter(Painted())
    log.addHandler(handler)
    log.error("x")
    handler.stream.close()
    assert bridged.record().severity_text == "ERROR"


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("message", "args", "body"),
    [
        ("%d steps", ("many",), "%d steps"),
        ("%s", (Unprintable(),), "%s"),
        (Unprintable(), (), "<Unprintable>"),
        ({"a": 1}, (), "{'a': 1}"),
        (42, (), "42"),
        ("lone \ud800 half", (), "lone \ufffd half"),
        ("x" * 9000, (), "x" * 8192),
        ("%(a)s", ({"a": "named"},), "named"),
        ("100%", (), "100%"),
    ],
)
def test_bodies(
    bridged: Bridged, log: logging.Logger, capfd: pytest.CaptureFixture[str], message: Any, args: Any, body: str
) -> None:
    """The body is the formatted message by the rules for strings; where that fails, the template, without a word."""
    log.propagate = False  # no other handler, which would tell of its own failure
    setup_logging_bridge(log.name)
    try:
        log.info(message, *args)
    finally:
        remove_logging_bridge(log.name)
    assert bridged.bodies() == [body]
    assert capfd.readouterr().err == ""


def test_extra_fields_are_attributes(bridged: Bridged, log: logging.Logger) -> None:
    """``extra`` is cleaned and redacted as span attributes are; what an attribute cannot hold is left out."""
    log.info(
        "x",
        extra={
            "step": 7,
            "loss": 0.5,
            "shape": [2, 3],
            "path": Path("/ckpt/3"),
            "api_key": "sk-123",
            "db.password": "hunter2",
            "nested": {"a": 1},
            "thing": object(),
            "nothing": None,
            "half": "\ud800",
            "big": 2**70,
        },
    )
    attributes = {key: value for key, value in bridged.attributes().items() if not key.startswith("code.")}
    assert attributes == {
        "step": 7,
        "loss": 0.5,
        "shape": (2, 3),
        "path": "/ckpt/3",
        "api_key": "[REDACTED]",
        "db.password": "[REDACTED]",
        "half": "\ufffd",
        "big": str(2**70),
    }


def test_fields_of_formatters_and_factories(bridged: Bridged, log: logging.Logger) -> None:
    """What a formatter leaves on a record is no attribute; what a record factory adds is one."""
    handler = logging.Handler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    handler.emit = handler.format  # type: ignore[method-assign, assignment]
    log.addHandler(handler)
    before = logging.getLogRecordFactory()

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = before(*args, **kwargs)
        record.shard = 3
        record.otelTraceID = "0"
        return record

    logging.setLogRecordFactory(factory)
    try:
        log.info("x")
    finally:
        logging.setLogRecordFactory(before)
    attributes = bridged.attributes()
    assert {key for key in attributes if not key.startswith("code.")} == {"shard"}


def test_a_factory_from_before_the_import(log: logging.Logger) -> None:
    """What a record factory adds is exported also when it was there before this library."""
    original = logging.getLogRecordFactory()

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = original(*args, **kwargs)
        record.shard = 7
        return record

    logging.setLogRecordFactory(factory)
    try:
        fresh = runpy.run_path(log_records.__file__)
        fields = fresh["log_fields"](log.makeRecord(log.name, logging.INFO, "", 0, "any", (), None), Context())
    finally:
        logging.setLogRecordFactory(original)
    assert fields["attributes"]["shard"] == 7


def test_a_record_that_another_thread_completes(bridged: Bridged, log: logging.Logger) -> None:
    """A record to which somebody adds fields while it is read is exported."""
    record = logging.makeLogRecord({"name": log.name, "levelno": logging.INFO, "msg": "formatted meanwhile"})

    class Key(str):
        def __hash__(self) -> int:
            record.asctime = f"{getattr(record, 'asctime', '')}."
            setattr(record, record.asctime, 0)
            return super().__hash__()

    vars(record)[Key("shard")] = 7
    log.handle(record)
    assert bridged.attributes()["shard"] == 7


def test_explicit_fields_win(bridged: Bridged, log: logging.Logger) -> None:
    """An ``extra`` field by the name of a conventional attribute replaces it: who wraps a logger knows the place."""
    try:
        raise RuntimeError("real")
    except RuntimeError:
        log.exception("x", extra={"code.file.path": "kernel.cu", "exception.type": "CudaError"})
    attributes = bridged.attributes()
    assert attributes["code.file.path"] == "kernel.cu"
    assert attributes["exception.type"] == "CudaError"
    assert attributes["exception.message"] == "real"


class Local(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_exceptions(bridged: Bridged, log: logging.Logger) -> None:
    """``log.exception`` gives qualified type, message and stack trace, by the conventions."""
    try:
        raise OSError(2, "gone", "/ckpt")
    except OSError as error:
        log.exception("no checkpoint")
        expected = "".join(traceback.format_exception(error))
    attributes = bridged.attributes()
    assert attributes["exception.type"] == "FileNotFoundError"
    assert attributes["exception.message"] == "[Errno 2] gone: '/ckpt'"
    assert attributes["exception.stacktrace"] == expected
    assert bridged.record().body == "no checkpoint"


@pytest.mark.filterwarnings("default")
def test_an_exception_without_text(bridged: Bridged, log: logging.Logger) -> None:
    """An exception whose ``__str__`` fails still has its type, a placeholder and its stack trace."""
    log.error("x", exc_info=Local())
    attributes = bridged.attributes()
    assert attributes["exception.type"] == f"{__name__}.Local"
    assert attributes["exception.message"].startswith("<no message")
    assert "Local" in attributes["exception.stacktrace"]


@pytest.mark.parametrize("given", [None, False, (None, None, None), (), 0])
def test_no_exception(bridged: Bridged, log: logging.Logger, given: Any) -> None:
    """What says that there is no exception gives no attribute of one, nor does ``exc_info=True`` outside of one."""
    log.handle(logging.makeLogRecord({"name": log.name, "levelno": 20, "msg": "x", "exc_info": given}))
    assert bridged.attributes() == {}


def test_a_record_made_elsewhere(bridged: Bridged, log: logging.Logger) -> None:
    """A record that came over a socket has its exception as text, and keeps its time."""
    made = {"name": log.name, "levelno": 40, "msg": "x", "exc_text": "Traceback: far away", "created": 1_700_000_000.5}
    log.handle(logging.makeLogRecord(made))
    assert bridged.attributes() == {"exception.stacktrace": "Traceback: far away"}
    assert bridged.record().timestamp == 1_700_000_000_500_000_000


@pytest.mark.parametrize("created", [-1.0, 1e12, 1e300, float("nan"), float("inf"), "yesterday", None])
def test_a_time_that_cannot_be_sent(bridged: Bridged, log: logging.Logger, created: Any) -> None:
    """A record with a time that OTLP has no room for is sent without; its batch would be lost otherwise."""
    log.handle(logging.makeLogRecord({"name": log.name, "levelno": logging.INFO, "msg": "any", "created": created}))
    record = bridged.record()
    assert record.timestamp is None
    assert record.observed_timestamp > 0


def test_a_class_without_its_instance(bridged: Bridged, log: logging.Logger) -> None:
    """Where only an exception's class is known, that is said."""
    made = {"name": log.name, "levelno": 40, "msg": "x", "exc_info": (KeyError, None, None)}
    log.handle(logging.makeLogRecord(made))
    assert bridged.attributes() == {"exception.type": "KeyError"}


def test_stack_info(bridged: Bridged, log: logging.Logger) -> None:
    """``stack_info=True`` gives the stack of the call as ``code.stacktrace``, its end when it is too long."""
    log.info("x", stack_info=True)
    stack = bridged.attributes()["code.stacktrace"]
    assert len(stack) <= 8192
    assert stack.endswith('log.info("x", stack_info=True)')


def test_long_stack_traces_keep_their_end(bridged: Bridged, log: logging.Logger) -> None:
    """A stack trace past the limit loses its beginning: the end says what was raised."""

    def deep(level: int) -> None:
        if level:
            (deep if level % 2 else lambda at: deep(at))(level - 1)
        raise RuntimeError("the end")

    try:
        deep(200)
    except RuntimeError:
        log.exception("x")
    stack = bridged.attributes()["exception.stacktrace"]
    assert len(stack) == 8192
    assert stack.endswith("RuntimeError: the end\n")


def test_more_fields_than_the_sdk_keeps(bridged: Bridged, log: logging.Logger) -> None:
    """With more than 128 fields the place in the code is among those that stay."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # OpenTelemetry's own, of attributes dropped
        log.info("x", extra={f"field.{number}": number for number in range(200)})
    attributes = bridged.attributes()
    assert len(attributes) == 128
    assert attributes["code.function.name"] == "test_more_fields_than_the_sdk_keeps"


def test_the_record_is_only_read(bridged: Bridged, log: logging.Logger) -> None:
    """After its export a record is what it was when the last handler saw it."""
    seen: list[tuple[logging.LogRecord, dict[str, Any]]] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append((record, dict(vars(record))))  # type: ignore[method-assign]
    log.addHandler(handler)
    log.propagate = False
    setup_logging_bridge(log.name)
    try:
        log.error("%s", "x", exc_info=ValueError("y"), stack_info=True, extra={"token": "secret"})
    finally:
        remove_logging_bridge(log.name)
    assert bridged.attributes()["token"] == "[REDACTED]"
    ((record, before),) = seen
    assert vars(record) == before


def test_the_name_of_a_task_is_no_field(bridged: Bridged, log: logging.Logger) -> None:
    """Python 3.12 and later put the task's name on each record; it is the interpreter's, not the application's."""

    async def work() -> None:
        log.info("x")

    asyncio.run(work())
    assert all(key.startswith("code.") for key in bridged.attributes())
