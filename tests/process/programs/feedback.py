"""The logging bridge on the root logger, over exporters that fail and log about it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import common
from common import say

from nemo_lens.sdk.logging_bridge import setup_logging_bridge

THREADS, EACH = 4, 50
_log = logging.getLogger("application")
# A third party's: nothing in its name says that it exports.
_own_log = logging.getLogger("acme.shipping")
# What the exporter holds while it fails and logs, and the application while it logs.
_lock = threading.RLock()
_forever = threading.Event()


class Everything(logging.Handler):
    """The application's own handler, which counts the records by logger and keeps those of Lens."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.of_lens: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen[record.name] += 1
        if record.name == "nemo_lens":
            self.of_lens.append(record.getMessage())

    def tell(self) -> None:
        say(
            application=self.seen["application"],
            own=self.seen["acme.shipping"],
            others=sorted(set(self.seen) - {"application", "acme.shipping", "nemo_lens"}),
            of_lens=self.of_lens,
        )


class Exporter:
    """A third party's exporter of log records, which logs, under its lock, that it fails, and then fails."""

    def __init__(self, fail: Callable[[], Any]) -> None:
        self._fail = fail
        self.bodies: list[str] = []
        self.calls = 0

    def export(self, batch: Sequence[Any]) -> Any:
        with _lock:
            self.calls += 1
            self.bodies += [item.log_record.body for item in batch]
            _own_log.error("could not ship %d records", len(batch))
            return self._fail()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True

    def shutdown(self) -> None:
        _own_log.warning("closing after %d calls", self.calls)


def _raise() -> Any:
    raise ConnectionError("the warehouse is closed")


def _hang() -> Any:
    _lock.release()  # held for ever otherwise, which is not the exporter's to do
    try:
        _forever.wait()
    finally:
        _lock.acquire()


HOW: dict[str, Callable[[], Any]] = {"refuses": lambda: None, "raises": _raise, "hangs": _hang}


def log_everything(where: str) -> None:
    """Log from several threads, half of the records with the exporter's lock held."""

    def log(thread: int) -> None:
        for number in range(EACH):
            if number % 2:
                with _lock:
                    time.sleep(0.001)  # the others want it by then
                    _log.info("%s %d %d", where, thread, number)
            else:
                _log.info("%s %d %d", where, thread, number)

    threads = [threading.Thread(target=log, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    say(stuck=sum(thread.is_alive() for thread in threads))


def listen() -> Everything:
    """Have the application's own handler on the root logger, and everybody at DEBUG."""
    everything = Everything()
    logging.getLogger().addHandler(everything)
    logging.getLogger().setLevel(logging.DEBUG)
    return everything


def third_party(how: str) -> None:
    """An exporter given to the set-up."""
    everything = listen()
    exporter = Exporter(HOW[how])
    handle = common.set_up(log_exporter=exporter, logs_enabled=True, exporter="console", metrics_enabled=False)
    setup_logging_bridge(level=logging.DEBUG)
    for where in ("first", "second"):
        log_everything(where)
        started = time.monotonic()
        handle.force_flush(500)
        say(flush_s=time.monotonic() - started)
    settled = exporter.calls
    time.sleep(0.5)  # many of the pipe's intervals
    say(later_calls=exporter.calls - settled)
    started = time.monotonic()
    handle.shutdown(1000)
    say(shutdown_s=time.monotonic() - started)
    say(bodies=exporter.bodies)
    everything.tell()


def over_otlp(timeout_ms: str) -> None:
    """The official exporters, whose own loggers are at DEBUG, as everybody's."""
    everything = listen()
    handle = common.set_up(logs_enabled=True)
    setup_logging_bridge(level=logging.DEBUG)
    log_everything("first")
    handle.force_flush(int(timeout_ms))
    log_everything("second")
    started = time.monotonic()
    handle.shutdown(int(timeout_ms))
    say(shutdown_s=time.monotonic() - started)
    everything.tell()


def host() -> None:
    """A host application's logger provider with a simple processor, whose exporter fails in the logging thread."""
    from opentelemetry import _logs
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

    everything = listen()
    exporter: Any = Exporter(_raise)
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    _logs.set_logger_provider(provider)
    handle = common.set_up(logs_enabled=True, traces_enabled=False, metrics_enabled=False)
    log_everything("first")
    handle.shutdown(5000)
    say(bodies=exporter.bodies)
    everything.tell()


if __name__ == "__main__":
    common.main(globals())
