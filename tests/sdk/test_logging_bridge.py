"""Which records the logging bridge exports, when, and what it leaves alone."""

from __future__ import annotations

import logging
import logging.config
import logging.handlers
import queue
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk import _logs as logs_sdk
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nemo_lens.api import NemoLensConfig, setup_telemetry
from nemo_lens.api._diagnostics import forget_reported
from nemo_lens.sdk import _compat
from nemo_lens.sdk.logging_bridge import remove_logging_bridge, setup_logging_bridge
from support.bridged import Bridged, bridging, fresh_logger

ORIGINAL = logging.Logger.callHandlers


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    for name in ("", "job", "job.train", "other"):
        remove_logging_bridge(name)
    assert logging.Logger.callHandlers is ORIGINAL


@pytest.fixture
def bridged() -> Iterator[Bridged]:
    with bridging() as into:
        yield into


@pytest.fixture
def unattached() -> Iterator[Bridged]:
    """Logs are on, and no bridge is attached by set-up."""
    with bridging(logs_enabled=False) as into:
        yield into


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    with fresh_logger("job") as parent, fresh_logger("job.train") as logger:
        del parent
        yield logger


# ---- set-up and removal


def test_set_up_attaches_it_to_the_root_logger_at_info(log: logging.Logger) -> None:
    """With ``logs_enabled`` records from INFO up arrive, until the shutdown, which puts ``logging`` back."""
    log.info("before")
    with bridging() as bridged:
        log.debug("too low")
        log.info("first")
        log.error("second")
        assert bridged.bodies() == ["first", "second"]
        bridged.handle.shutdown()
        assert logging.Logger.callHandlers is ORIGINAL
        log.error("after")
    assert [item.log_record.body for item in bridged._exporter.get_finished_logs()] == ["first", "second"]


def test_a_second_run_attaches_it_again(log: logging.Logger) -> None:
    """Each set-up has its own bridge, and a record arrives at the present run alone."""
    for number in range(2):
        with bridging() as bridged:
            log.info("run %d", number)
            assert bridged.bodies() == [f"run {number}"]
        log.info("between")


def test_no_logs_no_bridge(log: logging.Logger, unattached: Bridged) -> None:
    """Without ``logs_enabled`` nothing is attached."""
    log.error("x")
    assert logging.Logger.callHandlers is ORIGINAL
    assert unattached.bodies() == []


def test_no_level_formatter_or_handler_changes(bridged: Bridged, log: logging.Logger) -> None:
    """``logging`` looks as it does without the bridge."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    setup_logging_bridge(level=logging.DEBUG)
    setup_logging_bridge("job")
    assert (root.handlers, root.level) == (handlers, level)
    assert (log.handlers, log.level, log.propagate) == ([], logging.DEBUG, True)
    with fresh_logger("lonely") as lonely:
        lonely.propagate = False
        setup_logging_bridge("lonely")
        assert not lonely.hasHandlers()
        remove_logging_bridge("lonely")


def test_the_same_bridge_at_every_call(bridged: Bridged, log: logging.Logger) -> None:
    """However often it is set up, a record arrives once; the level is that of the latest call."""
    first = setup_logging_bridge()
    assert isinstance(first, logging.Handler)
    assert setup_logging_bridge("", logging.WARNING) is first
    assert setup_logging_bridge("root") is first, "the root logger goes by both names"
    log.info("once")
    setup_logging_bridge(level="error")
    log.warning("too low")
    assert first.level == logging.ERROR
    assert bridged.bodies() == ["once"]
    assert setup_logging_bridge("job") is not first


def test_the_most_specific_bridge_that_admits_a_record(unattached: Bridged, log: logging.Logger) -> None:
    """A record goes once, through the nearest bridge above it whose level admits it; siblings have none."""
    setup_logging_bridge("job.train", logging.ERROR)
    setup_logging_bridge("job", logging.DEBUG)
    setup_logging_bridge("", logging.WARNING)
    log.error("through job.train")
    log.debug("through job")
    with fresh_logger("other") as other:
        other.info("too low for the root's")
        other.warning("through the root's")
    assert unattached.bodies() == ["through job.train", "through job", "through the root's"]


def test_a_bridge_for_a_logger_that_is_not_there(unattached: Bridged) -> None:
    """Setting up makes no logger, which ``dictConfig`` would disable; its children's records go through it."""
    known = set(logging.root.manager.loggerDict)
    setup_logging_bridge("absent.package")
    assert set(logging.root.manager.loggerDict) == known
    logging.getLogger("absent.package.part").warning("child")
    logging.getLogger("absent.librarian").warning("another")
    logging.getLogger("absent").warning("parent")
    remove_logging_bridge("absent.package")
    logging.getLogger("absent.package.part").warning("after")
    assert unattached.bodies() == ["child"]


def test_propagation_is_respected(bridged: Bridged, log: logging.Logger) -> None:
    """What a logger keeps from its ancestors' handlers it keeps from their bridges."""
    log.propagate = False
    log.info("kept")
    setup_logging_bridge("job")
    log.info("kept too")
    setup_logging_bridge("job.train")
    log.info("sent")
    assert bridged.bodies() == ["sent"]


def test_levels_and_filters_of_loggers_hold(bridged: Bridged, log: logging.Logger) -> None:
    """What a logger's level, its filters or ``logging.disable`` stop never reaches the bridge."""
    log.setLevel(logging.WARNING)
    log.info("below the logger's level")
    log.addFilter(lambda record: "no" not in record.getMessage())
    log.warning("no")
    logging.disable(logging.WARNING)
    try:
        log.warning("disabled")
    finally:
        logging.disable(logging.NOTSET)
    log.disabled = True
    log.error("disabled")
    log.disabled = False
    log.filters.clear()
    log.warning("sent")
    assert bridged.bodies() == ["sent"]


def test_it_is_removed(bridged: Bridged, log: logging.Logger) -> None:
    """After ``remove_logging_bridge`` nothing arrives, also of what set-up attached; removing twice is no matter."""
    log.info("sent")
    remove_logging_bridge()
    remove_logging_bridge()
    remove_logging_bridge("job")
    log.info("after")
    assert bridged.bodies() == ["sent"]
    assert logging.Logger.callHandlers is ORIGINAL


def test_shutdown_takes_off_what_set_up_attached_only(log: logging.Logger) -> None:
    """A bridge that the application set up, before or after, outlives the run, with its filters, for the next one."""
    with fresh_logger("other") as other:
        setup_logging_bridge("other", logging.DEBUG).addFilter(lambda record: "no" not in record.msg)
        other.info("before")
        with bridging():
            root = setup_logging_bridge("", logging.ERROR)
        with bridging() as bridged:
            assert setup_logging_bridge("", logging.ERROR) is root
            other.debug("no")
            other.debug("yes")
            log.info("too low: set-up keeps the level of the application's own bridge")
            log.error("error")
            assert bridged.bodies() == ["yes", "error"]


def test_a_level_that_the_application_chose_stays(log: logging.Logger) -> None:
    """Set up before telemetry, the root logger's bridge keeps its level, and records arrive from then on."""
    setup_logging_bridge(level=logging.DEBUG)
    log.debug("early")
    with bridging() as bridged:
        log.debug("arrives")
        assert bridged.bodies() == ["arrives"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_bridge_without_logs_is_one_warning(caplog: pytest.LogCaptureFixture, log: logging.Logger, when: str) -> None:
    """A bridge while telemetry is on without logs is one WARNING that names the switch."""
    forget_reported()
    if when == "before":
        setup_logging_bridge()
    config = NemoLensConfig(enabled=True, metrics_enabled=False, run_id="r")
    with setup_telemetry(config, resource_attributes={"nv.dl.rank": 0}, span_exporter=InMemorySpanExporter()):
        setup_logging_bridge()
        setup_logging_bridge("job")
        log.warning("goes nowhere")
    said = [record for record in caplog.records if "NEMO_LENS_LOGS_ENABLED=1" in record.getMessage()]
    assert [record.levelname for record in said] == ["WARNING"]


@pytest.mark.parametrize("name", [None, 7, logging.getLogger("job")])
def test_a_name_that_is_none(name: Any) -> None:
    """A name that is no str is a TypeError that says what is accepted."""
    with pytest.raises(TypeError, match="expected the name of a logger as a str"):
        setup_logging_bridge(name)


@pytest.mark.parametrize("name", ["grpc", "opentelemetry.sdk", "urllib3.connectionpool", "nemo_lens"])
def test_names_that_are_never_exported(name: str) -> None:
    """A bridge for a logger whose records never leave is a ValueError."""
    with pytest.raises(ValueError, match="never exported"):
        setup_logging_bridge(name)


def test_levels_that_are_none() -> None:
    """A level that is none is an error that says what is accepted, and which was meant; nothing is attached."""
    with pytest.raises(ValueError, match="DEBUG, INFO, WARNING, ERROR, CRITICAL, did you mean 'WARNING'"):
        setup_logging_bridge(level="warnin")
    for level in (None, 1.5, True):
        with pytest.raises(TypeError, match="expected a number or one of DEBUG"):
            setup_logging_bridge(level=level)  # type: ignore[arg-type]
    assert logging.Logger.callHandlers is ORIGINAL


# ---- filters


def test_a_filter_drops_and_redacts(bridged: Bridged, log: logging.Logger) -> None:
    """A filter of the bridge may drop a record or change it; the application's handlers see it as it was."""
    console: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = console.append  # type: ignore[method-assign, assignment]

    def redact(record: logging.LogRecord) -> bool:
        record.msg = str(record.msg).replace("hunter2", "***")
        record.extra_field = 1
        return "drop" not in record.msg

    bridge = setup_logging_bridge()
    bridge.addFilter(redact)
    log.addHandler(handler)
    log.info("password hunter2")
    log.info("drop me")
    bridge.removeFilter(redact)
    assert [record.getMessage() for record in console] == ["password hunter2", "drop me"]
    assert not hasattr(console[0], "extra_field")
    assert bridged.record().body == "password ***"
    assert bridged.attributes()["extra_field"] == 1


def test_a_filter_on_another_handler(bridged: Bridged, log: logging.Logger) -> None:
    """A record is exported as the application's handlers leave it: what a console's filter redacts stays redacted."""

    def redact(record: logging.LogRecord) -> bool:
        record.msg = str(record.msg).replace("hunter2", "***")
        return True

    handler = logging.NullHandler()
    handler.handle = handler.filter  # type: ignore[method-assign, assignment]
    handler.addFilter(redact)
    log.addHandler(handler)
    log.info("password hunter2")
    assert bridged.bodies() == ["password ***"]


def test_a_filter_that_fails_lets_nothing_out(
    bridged: Bridged, log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """A filter may be there to redact: what it fails on is dropped, which one WARNING says; the call returns."""

    def broken(record: logging.LogRecord) -> bool:
        raise KeyError(record.msg)

    bridge = setup_logging_bridge()
    bridge.addFilter(broken)
    log.info("secret")
    log.info("secret")
    bridge.removeFilter(broken)
    assert bridged.bodies() == []
    assert len([record for record in caplog.records if "filter of the logging bridge" in record.getMessage()]) == 1


# ---- what is never exported


@pytest.mark.parametrize(
    "name", ["opentelemetry", "grpc._channel", "urllib3.connectionpool", "nemo_lens", "nemo_lens.x"]
)
def test_records_of_what_exports_are_not_exported(bridged: Bridged, name: str) -> None:
    """Records of OpenTelemetry, gRPC, urllib3 and Lens stay here; a name that only begins alike is the user's."""
    logging.getLogger(name).error("x")
    logging.getLogger(f"{name.partition('.')[0]}_user").error("mine")
    assert bridged.bodies() == ["mine"]


def test_records_from_inside_an_export_are_not_exported(log: logging.Logger) -> None:
    """An exporter that logs, by whatever logger, in its thread, sends nothing more by it."""

    class Talking(_compat.InMemoryLogRecordExporter):
        def export(self, batch: Any) -> Any:
            log.error("about to send %d records", len(batch))
            return super().export(batch)

    with bridging(exporter=Talking()) as bridged:
        log.info("x")
        assert bridged.bodies() == ["x"]
        assert bridged.bodies() == ["x"]


def test_records_from_a_suppressed_context_are_not_exported(bridged: Bridged, log: logging.Logger) -> None:
    """The key that OpenTelemetry's own processors set while they export is heeded."""
    token = attach(Context())
    _compat.suppress_instrumentation()
    log.error("inside")
    detach(token)
    log.error("outside")
    assert bridged.bodies() == ["outside"]


def test_a_record_logged_while_one_is_sent(bridged: Bridged, log: logging.Logger) -> None:
    """A message whose text logs is sent once, and what it logs is not: no recursion."""

    class Talking:
        def __str__(self) -> str:
            log.error("asked for my text")
            return "text"

    log.propagate = False
    setup_logging_bridge(log.name)
    log.info("%s", Talking())
    log.info("after")
    assert bridged.bodies() == ["text", "after"]


def test_captured_warnings_arrive(bridged: Bridged) -> None:
    """``captureWarnings`` makes warnings records of ``py.warnings``, which are exported like any other."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        logging.captureWarnings(True)
        try:
            warnings.warn("deprecated", stacklevel=1)
        finally:
            logging.captureWarnings(False)
    assert bridged.scopes() == ["py.warnings"]
    assert "deprecated" in bridged.record().body


# ---- configuration calls and other handlers


def test_configuration_calls_keep_it(bridged: Bridged, log: logging.Logger) -> None:
    """What replaces handlers, closes all of them or shuts ``logging`` down leaves the bridge working."""
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        root.handlers = []
        log.info("handlers replaced")
        root.handlers.clear()
        log.info("handlers cleared")
        logging.basicConfig(force=True, handlers=[logging.NullHandler()])
        log.info("basicConfig")
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
        log.info("dictConfig")
        logging.config.dictConfig({"version": 1, "incremental": True, "root": {"level": "INFO"}})
        log.info("incremental")
        logging.shutdown()
        log.info("shutdown")
    finally:
        root.handlers[:] = before
        root.setLevel(logging.WARNING)
    expected = ["handlers replaced", "handlers cleared", "basicConfig", "dictConfig", "incremental", "shutdown"]
    assert bridged.bodies() == expected


def test_a_handler_that_raises(bridged: Bridged, log: logging.Logger) -> None:
    """The application's exception reaches the application, the same object, and the record is exported."""
    error = RuntimeError("broken handler")

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise error

    log.addHandler(Broken())
    with pytest.raises(RuntimeError) as caught:
        log.info("x")
    assert caught.value is error
    assert bridged.bodies() == ["x"]


def test_added_to_a_logger_by_hand(bridged: Bridged, log: logging.Logger) -> None:
    """Who adds the bridge to a logger, as one adds a handler, gets each record once all the same."""
    log.addHandler(setup_logging_bridge("job"))
    log.info("x")
    assert bridged.bodies() == ["x"]


def test_behind_a_queue_listener(bridged: Bridged, log: logging.Logger) -> None:
    """The bridge works as the handler of a queue listener, which calls it in a thread of its own."""
    records: queue.SimpleQueue[Any] = queue.SimpleQueue()
    bridge = setup_logging_bridge("other")
    listener = logging.handlers.QueueListener(records, bridge)
    listener.start()
    log.propagate = False
    log.addHandler(logging.handlers.QueueHandler(records))  # type: ignore[arg-type]
    log.info("x")
    listener.stop()
    assert bridged.bodies() == ["x"]


def test_a_record_that_is_none(bridged: Bridged) -> None:
    """Called by hand, as by a queue listener whose thread would end, the bridge raises nothing whatever it is given."""
    assert setup_logging_bridge().handle(logging.makeLogRecord({})) is False
    assert bridged.bodies() == []


@pytest.mark.filterwarnings("ignore:.*LoggingHandler.*:DeprecationWarning")
def test_beside_an_opentelemetry_handler(bridged: Bridged, log: logging.Logger) -> None:
    """Where OpenTelemetry's own ``LoggingHandler`` feeds the same provider, records do not arrive twice.

    One that feeds another provider, or does not take the record's level, is no reason to leave it out.
    """
    provider: Any = bridged.handle.logger_provider
    beside = logs_sdk.LoggingHandler(logging.ERROR, provider)
    log.addHandler(beside)
    log.error("by the handler")
    log.info("by the bridge")
    log.handlers = [logs_sdk.LoggingHandler(logging.NOTSET, logs_sdk.LoggerProvider(shutdown_on_exit=False))]
    log.info("elsewhere, and here")
    assert bridged.bodies() == ["by the handler", "by the bridge", "elsewhere, and here"]


# ---- the wrapper around callHandlers


def test_another_wrapper_around_ours(bridged: Bridged, log: logging.Logger) -> None:
    """Who wrapped the same method later keeps working, and so does the bridge, once a record, also after a removal."""
    seen: list[str] = []
    ours = logging.Logger.callHandlers

    def theirs(self: logging.Logger, record: logging.LogRecord) -> None:
        seen.append(record.getMessage())
        ours(self, record)

    logging.Logger.callHandlers = theirs  # type: ignore[method-assign]
    try:
        log.info("both")
        remove_logging_bridge()
        assert logging.Logger.callHandlers is theirs
        log.info("theirs alone")
        setup_logging_bridge()
        log.info("both again")
        assert logging.Logger.callHandlers is theirs
    finally:
        logging.Logger.callHandlers = ours  # type: ignore[method-assign]
    assert seen == ["both", "theirs alone", "both again"]
    assert bridged.bodies() == ["both", "both again"]


def test_thrown_out_by_another_wrapper(bridged: Bridged, log: logging.Logger) -> None:
    """Who puts back what was there before throws the bridge out; setting it up again brings it back, once."""
    ours = logging.Logger.callHandlers
    logging.Logger.callHandlers = ORIGINAL  # type: ignore[method-assign]
    log.info("lost")
    setup_logging_bridge()
    log.info("back")
    current = logging.Logger.callHandlers
    try:
        logging.Logger.callHandlers = lambda self, record: ours(self, record)  # type: ignore[method-assign]
        log.info("the first one is no longer ours")
    finally:
        logging.Logger.callHandlers = current  # type: ignore[method-assign]
    assert bridged.bodies() == ["back"]


def test_many_threads_set_up_log_and_remove(unattached: Bridged) -> None:
    """Eight threads that set up and remove bridges while they log: no error, and each record arrives once."""
    faults: list[BaseException] = []
    together = threading.Barrier(8)

    def work(number: int) -> None:
        name = f"worker.{number}"
        logger = logging.getLogger(name)
        together.wait(10)
        try:
            for step in range(100):
                setup_logging_bridge(name)
                logger.warning("%d.%d", number, step)
                remove_logging_bridge(name)
                logger.warning("after")
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert faults == []
    assert sorted(unattached.bodies()) == sorted(f"{number}.{step}" for number in range(8) for step in range(100))


def test_a_fault_of_the_provider_reaches_nobody(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    """A logger provider that raises costs the record, with one DEBUG line, and never the logging call."""
    with bridging() as bridged:
        caplog.set_level(logging.DEBUG, logger="nemo_lens")
        provider: Any = bridged.handle.logger_provider
        before = provider.get_logger
        provider.get_logger = lambda name: 1 / 0
        try:
            log.info("lost")
            log.info("lost")
        finally:
            provider.get_logger = before
        log.info("sent")
        assert bridged.bodies() == ["sent"]
    said = [record for record in caplog.records if "was not exported" in record.getMessage()]
    assert [record.levelname for record in said] == ["DEBUG"]


def test_at_the_recursion_limit(bridged: Bridged, log: logging.Logger) -> None:
    """Where the stack is full, a logging call raises no other error than it raises without the bridge."""
    log.propagate = False
    setup_logging_bridge(log.name)

    def dive() -> int:
        try:
            return dive() + 1
        except RecursionError:
            log.info("deep")  # may raise again, of logging's own frames: then there is room one level up
            return 0

    assert dive() > 0
    log.info("after")
    assert bridged.bodies()[-1] == "after"
