"""A job that configures ``logging`` in every way and logs, with the logging bridge and without it.

What it writes to standard error must be the same in both cases. Formats have neither times nor process ids.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import logging.config
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import common
from common import say

FORMAT = "%(levelname)s %(name)s %(funcName)s:%(lineno)d %(message)s"
log = logging.getLogger("job")


def configured(scenario: str, bridge: str) -> None:
    """Run a scenario with telemetry on, and the bridge on the root logger or not."""
    early = logging.getLogger("early")
    common.set_up(logs_enabled=bridge == "bridged", metrics_enabled=False)
    logging.getLogger("nemo_lens").setLevel(logging.ERROR)
    SCENARIOS[scenario]()
    log.info("info")
    log.warning("warning %d", 7)
    early.error("of a logger from before")
    root = logging.getLogger()
    say(handlers=[type(handler).__name__ for handler in root.handlers], level=root.level, has=log.hasHandlers())


def _nothing() -> None:
    """No configuration: warnings reach stderr through ``logging.lastResort``."""


def _basic_config() -> None:
    logging.basicConfig(format=FORMAT, level=logging.INFO)
    logging.basicConfig(format="second %(message)s", level=logging.DEBUG)


def _basic_config_force() -> None:
    logging.basicConfig(format="first %(message)s")
    log.error("before")
    logging.basicConfig(format=FORMAT, level=logging.INFO, force=True)


def _implicit_basic_config() -> None:
    """The functions of the module configure the root logger when it has no handler."""
    logging.warning("by the module's function")  # noqa: LOG015 - that is the point


DICT = {
    "version": 1,
    "formatters": {"plain": {"format": FORMAT}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain", "level": "INFO"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}


def _dict_config() -> None:
    """The default: loggers from before are disabled."""
    logging.config.dictConfig(DICT)


def _dict_config_keeping_loggers() -> None:
    logging.config.dictConfig({**DICT, "disable_existing_loggers": False})
    logging.config.dictConfig({"version": 1, "incremental": True, "handlers": {"console": {"level": "WARNING"}}})


FILE = f"""
[loggers]
keys=root
[handlers]
keys=console
[formatters]
keys=plain
[logger_root]
level=INFO
handlers=console
[handler_console]
class=StreamHandler
formatter=plain
args=(sys.stderr,)
[formatter_plain]
format={FORMAT}
"""


def _file_config() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logging.ini"
        path.write_text(FILE, encoding="utf-8")
        logging.config.fileConfig(path)


def _handlers_replaced() -> None:
    _basic_config()
    logging.getLogger().handlers = [logging.StreamHandler(sys.stderr)]


def _handlers_cleared() -> None:
    _basic_config()
    logging.getLogger().handlers.clear()


def _shut_down() -> None:
    _basic_config()
    logging.shutdown()


def _no_last_resort() -> None:
    logging.lastResort = None


def _failing_handlers() -> None:
    """Arguments that do not fit, and a handler whose stream is closed: logging reports them with stacks."""
    _basic_config()
    log.info("%d steps", "many")
    _called_from_here()


def _called_from_here() -> None:
    log.info("%d steps", "many", stack_info=True)


def _shown_warnings() -> None:
    """Warnings of one place, with records in between: shown once."""
    _basic_config()
    warnings.resetwarnings()
    warnings.simplefilter("default")
    for number in range(3):
        warnings.warn("of the application", UserWarning, stacklevel=1)
        log.info("step %d", number)


def _captured_warnings() -> None:
    logging.captureWarnings(True)
    _shown_warnings()
    logging.captureWarnings(False)


def _threads() -> None:
    _basic_config()
    for number in range(3):
        thread = threading.Thread(target=log.info, args=("from thread %d", number))
        thread.start()
        thread.join()


def _exceptions() -> None:
    _basic_config()
    try:
        raise RuntimeError("no checkpoint")
    except RuntimeError:
        log.exception("it failed")


SCENARIOS = {
    function.__name__.removeprefix("_"): function
    for function in (
        *(_nothing, _basic_config, _basic_config_force, _implicit_basic_config, _dict_config),
        *(_dict_config_keeping_loggers, _file_config, _handlers_replaced, _handlers_cleared, _shut_down),
        *(_no_last_resort, _failing_handlers, _shown_warnings, _captured_warnings, _threads, _exceptions),
    )
}


# ---- what becomes of records


def left_at_exit() -> None:
    """Records are logged and nothing is called afterwards."""
    common.set_up(logs_enabled=True)
    logging.getLogger().setLevel(logging.INFO)
    for number in range(700):
        log.info("record %d", number)


class LogsWhenItGoes:
    """Logs, and flushes, where it is deleted: the last of all, after the functions at exit and the daemon threads."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __del__(self, log: Any = log, say: Any = say, clock: Any = time.monotonic) -> None:
        started = clock()
        log.warning("deleted")
        self._handle.force_flush()
        self._handle.shutdown()
        say(deletion_s=clock() - started)


def logs_when_deleted(timeout_ms: str) -> None:
    """An object that lives as long as the interpreter does logs when that ends."""
    handle = common.set_up(logs_enabled=True, shutdown_timeout_ms=int(timeout_ms))
    builtins.kept = LogsWhenItGoes(handle)  # type: ignore[attr-defined]
    log.warning("kept")


def failing_collector() -> None:
    """Everything logs to the root, at every level, while the collector fails; then it recovers."""
    logging.basicConfig(level=logging.DEBUG, filename="/dev/null")
    lens = logging.StreamHandler()
    lens.setLevel(logging.WARNING)
    logging.getLogger("nemo_lens").addHandler(lens)
    handle = common.set_up(logs_enabled=True, metrics_enabled=False)
    for number in range(5):
        log.warning("while it fails %d", number)
    say(confirmed=handle.force_flush(1500))
    say(failed=True)
    common.wait_for_test()
    for number in range(5):
        log.warning("afterwards %d", number)
    handle.force_flush(20_000)
    handle.shutdown(5000)
    say(done=True)


def lock_of_an_exporter() -> None:
    """A host's exporter fails and logs while it holds its lock, and threads log while they hold that, too.

    With a handler that has a lock, one thread holds that and wants the exporter's, another the other way round.
    """
    from opentelemetry import _logs
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

    from nemo_lens.sdk import _compat
    from nemo_lens.sdk.logging_bridge import setup_logging_bridge

    lock = threading.RLock()
    exported: list[str] = []

    class Locking(_compat.LogRecordExporter):
        def export(self, batch: Any) -> Any:
            with lock:
                exported.extend(item.log_record.body for item in batch)
                log.warning("the exporter's own, with its lock held")
                raise RuntimeError("the collector is gone")

        def shutdown(self) -> None: ...

        def force_flush(self, timeout_millis: int = 0) -> bool:
            return True

    logging.basicConfig(filename="/dev/null")
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(Locking()))
    _logs.set_logger_provider(provider)
    setup_logging_bridge()

    def log_with_the_lock(number: int) -> None:
        for step in range(50):
            with lock if number % 2 else contextlib.nullcontext():
                log.warning("thread %d step %d", number, step)

    threads = [threading.Thread(target=log_with_the_lock, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    say(hanging=sum(thread.is_alive() for thread in threads), exported=len(exported), distinct=len(set(exported)))


def host_provider() -> None:
    """The application has a logger provider of its own, first alone, then with Lens, then with its own handler."""
    import warnings as python_warnings

    from opentelemetry import _logs
    from opentelemetry.sdk import _logs as logs_sdk
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

    from nemo_lens.sdk import _compat
    from nemo_lens.sdk.logging_bridge import remove_logging_bridge, setup_logging_bridge

    logging.getLogger().setLevel(logging.INFO)
    seen = _compat.InMemoryLogRecordExporter()
    early = python_warnings.catch_warnings()
    early.__enter__()
    python_warnings.simplefilter("ignore")
    handler = logs_sdk.LoggingHandler()  # before there is a provider
    early.__exit__(None, None, None)
    setup_logging_bridge()
    log.info("nowhere")
    provider = logs_sdk.LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(seen))
    _logs.set_logger_provider(provider)
    log.info("host alone")
    with common.set_up(logs_enabled=True, metrics_enabled=False):
        log.info("both")
        logging.getLogger().addHandler(handler)
        log.info("both, with the host's handler")
        logging.getLogger().removeHandler(handler)
    log.info("host after")
    remove_logging_bridge()
    log.info("nobody")
    say(host=[item.log_record.body for item in seen.get_finished_logs()])


def after_the_run() -> None:
    """The run is over, its provider stays the global one, and the application's bridge goes on to nowhere."""
    from nemo_lens.sdk.log_destination import current
    from nemo_lens.sdk.logging_bridge import setup_logging_bridge

    setup_logging_bridge()
    with common.set_up(logs_enabled=True, metrics_enabled=False):
        log.warning("first run")
    log.warning("between")
    say(between=current() is None)
    with common.set_up(logs_enabled=False, metrics_enabled=False):
        log.warning("run without logs")
        say(without_logs=current() is None)
    with common.set_up(logs_enabled=True, metrics_enabled=False):
        log.warning("last run")


if __name__ == "__main__":
    common.main(globals())
