"""Processes that set telemetry up, work, and end one way or another."""

from __future__ import annotations

import atexit
import logging
import math
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import common
from common import say

from nemo_lens.api import managed_span


def begin(**options: Any) -> Any:
    """Set up, finish one span, measure, log."""
    handle = common.set_up(logs_enabled=True, **options)
    with managed_span("work", "done"):
        handle.meter.create_counter("done").add(2)
        common.write_log(handle, "done")
    return handle


def begin_numbers() -> Any:
    """Set up, record one value of each kind of metric, have the observable ones observed, log through ``logging``."""
    from nemo_lens.api.instruments import MetricSpec, create_metric_instruments, record_metrics, register_metric_group

    logging.getLogger("application").setLevel(logging.INFO)
    handle = common.set_up(logs_enabled=True)
    kinds = ("gauge", "histogram", "counter", "up_down_counter")
    observable = ("observable_gauge", "observable_counter", "observable_up_down_counter")
    register_metric_group(
        "lives",
        [
            *(MetricSpec(kind, kind, kind) for kind in kinds),
            *(MetricSpec(kind, kind, kind, callback=lambda: 7) for kind in observable),
        ],
    )
    create_metric_instruments(handle.meter, "lives")
    record_metrics(handle.meter, "lives", dict.fromkeys(kinds, 3))
    logging.getLogger("application").info("logged")
    return handle


def set_up_only() -> None:
    """Set up, do nothing, end."""
    common.set_up()


# ---- ends without a shutdown


def falls_off() -> None:
    """Run to the end of the script."""
    begin()


def exits_in_span(code: str) -> None:
    """Call sys.exit inside nested spans."""
    begin()
    with managed_span("work", "outer"), managed_span("work", "inner"):
        sys.exit(int(code))


def raises() -> None:
    """End by an exception nobody catches."""
    begin()
    with managed_span("work", "outer"), managed_span("work", "inner"):
        raise RuntimeError("loss is not finite")


def leaves_spans_open() -> None:
    """End with spans open: nested ones here, one in a thread that never ends."""
    begin()
    held = [managed_span("work", name) for name in ("run", "epoch", "step")]
    for span in held:
        span.__enter__()
    opened = threading.Event()

    def forever() -> None:
        with managed_span("work", "in thread"):
            opened.set()
            time.sleep(3600)

    threading.Thread(target=forever, daemon=True).start()
    opened.wait()


def outlived_by_thread() -> None:
    """End the main thread before a thread that still works, and another that calls sys.exit in a span."""
    handle = begin()

    def late() -> None:
        threading.main_thread().join()
        with managed_span("work", "late"):
            handle.meter.create_counter("late").add(1)

    def exiting() -> None:
        with managed_span("work", "exiting thread"):
            sys.exit(9)

    threading.Thread(target=late).start()
    threading.Thread(target=exiting).start()


def works_at_exit() -> None:
    """Work in a function registered with atexit after the set-up."""
    begin()

    def last_words() -> None:
        with managed_span("work", "at exit"):
            pass

    atexit.register(last_words)


def os_exit_after_flush() -> None:
    """Flush, then leave past Python's own exit."""
    handle = begin()
    say(confirmed=handle.force_flush())
    os._exit(7)


def numbers_fall_off() -> None:
    """Run to the end of the script with numbers and a record that nothing has exported yet."""
    begin_numbers()


def numbers_terminated() -> None:
    """Wait for SIGTERM with numbers and a record that nothing has exported yet."""
    begin_numbers().install_sigterm_handler()
    _work_until_signalled()


def logs_at_exit(timeout_ms: str = "5000") -> None:
    """Log in functions registered with atexit, before the set-up, which come last, and after it."""
    log = logging.getLogger("application")
    log.setLevel(logging.INFO)
    atexit.register(lambda: say(ended=time.monotonic()))
    for number in range(3):
        atexit.register(log.info, "registered before, %d", number)
    common.set_up(logs_enabled=True, shutdown_timeout_ms=int(timeout_ms))
    atexit.register(log.info, "registered after")
    log.info("last line")
    say(ending=time.monotonic())


def logs_after_shutdown() -> None:
    """Shut down, then log, also at exit."""
    log = logging.getLogger("application")
    log.setLevel(logging.INFO)
    atexit.register(log.info, "at exit")
    handle = common.set_up(logs_enabled=True)
    log.info("before")
    handle.shutdown()
    log.info("after")


def shuts_down_in_span() -> None:
    """Shut down, twice, with a span open, leave it, and go on working."""
    handle = begin()
    with managed_span("work", "around"):
        handle.shutdown()
        handle.shutdown()
        with managed_span("work", "after"):
            pass
    handle.tracer.start_span("after").end()
    handle.meter.create_counter("after").add(1)
    common.write_log(handle, "after")
    say(exporting=handle.is_exporting, flushed=handle.force_flush())


def forked_end() -> None:
    """End a forked child whose first span comes when no thread can be started any more."""
    begin(shutdown_timeout_ms=1000)
    pid = os.fork()
    if pid == 0:
        held = managed_span("work", "open in child")
        held.__enter__()
        ending = time.monotonic()
        atexit.register(lambda: say(at_exit=True))
        say(ending=ending)
        sys.exit(0)
    os.waitpid(pid, 0)
    say(child_ended=time.monotonic())
    os._exit(0)


# ---- signals


def _work_until_signalled() -> None:
    with managed_span("work", "run"), managed_span("work", "step"):
        say(ready=os.getpid())
        while True:
            time.sleep(0.05)


def terminated(timeout_ms: str = "2000") -> None:
    """Wait for SIGTERM with the default action behind the handler."""
    begin().install_sigterm_handler(int(timeout_ms))
    _work_until_signalled()


def terminated_with_handler() -> None:
    """Wait for SIGTERM with the application's own handler behind ours."""

    def own(number: int, frame: object) -> None:
        say(own=number, delivered=_delivered())
        sys.exit(5)

    signal.signal(signal.SIGTERM, own)
    handle = begin()
    handle.install_sigterm_handler()
    handle.install_sigterm_handler()
    _work_until_signalled()


def terminated_with_flag() -> None:
    """Get SIGTERM, twice, where the application takes note of it, finishes and writes a checkpoint."""
    noted: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: noted.append(number))
    handle = begin()
    handle.install_sigterm_handler()
    with managed_span("work", "run"):
        os.kill(os.getpid(), signal.SIGTERM)
        say(delivered=_delivered(), exporting=handle.is_exporting)
        with managed_span("work", "checkpoint"):
            handle.meter.create_counter("done").add(1)
            common.write_log(handle, "checkpoint")
        os.kill(os.getpid(), signal.SIGTERM)
    assert noted == [signal.SIGTERM] * 2


def terminated_by_timeout(given: str) -> None:
    """Wait for SIGTERM with a timeout of any kind."""
    timeouts: dict[str, Any] = {"None": None, "inf": math.inf, "nan": math.nan, "-1": -1}
    begin().install_sigterm_handler(timeouts.get(given, given))
    _work_until_signalled()


def _delivered() -> bool:
    """Whether the first span is in its file."""
    files = Path(os.environ["NEMO_LENS_FILE_PATH"]).parent.glob("traces-*")
    return any('"done"' in file.read_text(encoding="utf-8") for file in files)


def terminated_and_goes_on() -> None:
    """Get SIGTERM, twice, where the application ignores it; work on afterwards."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begin().install_sigterm_handler(10_000)
    for _ in range(2):
        started = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)
        say(signal_s=time.monotonic() - started)
    with managed_span("work", "after"):
        pass


def terminated_often() -> None:
    """Get SIGTERM far more often than a flush takes, with the application's own handler behind ours."""
    noted: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: noted.append(number))
    begin().install_sigterm_handler(500)
    storm = threading.Thread(
        target=lambda: [(os.kill(os.getpid(), signal.SIGTERM), time.sleep(0.01)) for _ in range(200)]
    )
    storm.start()
    while storm.is_alive() and not noted:
        time.sleep(0.01)
    say(noted_in_the_storm=storm.is_alive())
    storm.join()


def terminated_in_shutdown(timeout_ms: str = "5000") -> None:
    """Get SIGTERM while the main thread is in the middle of a shutdown."""
    handle = begin()
    handle.install_sigterm_handler(int(timeout_ms))
    say(ready=True)
    handle.shutdown(10_000)
    say(shut_down=True)


def two_shutdowns() -> None:
    """Shut down from two threads; the one in more of a hurry must not cut the other one's off."""
    handle = begin()
    hurried = threading.Thread(target=lambda: (time.sleep(0.1), handle.shutdown(100)))
    hurried.start()
    handle.shutdown(10_000)
    hurried.join()


def terminated_in_lock() -> None:
    """Get SIGTERM while the interrupted code holds the lock of an open span."""
    begin().install_sigterm_handler(500)
    with managed_span("work", "run") as span, span._lock:
        say(ready=True)
        while True:
            time.sleep(0.05)


def gives_sigterm_back() -> None:
    """Shut down: SIGTERM is what it was, unless somebody took it since."""

    def own(number: int, frame: object) -> None:
        pass

    def later(number: int, frame: object) -> None:
        pass

    signal.signal(signal.SIGTERM, own)
    handle = begin()
    handle.install_sigterm_handler()
    handle.shutdown()
    say(restored=signal.getsignal(signal.SIGTERM) is own)
    handle = common.set_up()
    handle.install_sigterm_handler()
    signal.signal(signal.SIGTERM, later)
    handle.shutdown()
    say(kept=signal.getsignal(signal.SIGTERM) is later)
    handle = common.set_up()
    thread = threading.Thread(target=handle.install_sigterm_handler)
    thread.start()
    thread.join()
    say(untouched=signal.getsignal(signal.SIGTERM) is later)


def interrupted() -> None:
    """Wait for Ctrl-C."""
    begin()
    _work_until_signalled()


def interrupted_in_shutdown() -> None:
    """Get Ctrl-C while a shutdown waits for a collector that hangs."""
    handle = begin(shutdown_timeout_ms=20_000)
    say(ready=True)
    handle.shutdown()


# ---- collectors that are dead or hang

SPANS = 3000


def queue_everything() -> Any:
    """Leave 3000 spans, measurements and log records in the queues."""
    handle = common.set_up(logs_enabled=True, shutdown_timeout_ms=1000)
    handle.meter.create_counter("done").add(1)
    for number in range(SPANS):
        with managed_span("work", "step", number=number):
            pass
        if number % 30 == 0:
            common.write_log(handle, "step")
    say(exporting=handle.is_exporting)
    return handle


def shuts_down_dead() -> None:
    """Shut down against a collector that takes nothing, with a span open."""
    handle = queue_everything()
    started = time.monotonic()
    handle.shutdown(1000)
    say(shutdown_s=time.monotonic() - started, ending=time.monotonic())


def exits_dead() -> None:
    """End without a shutdown against a collector that takes nothing."""
    queue_everything()
    say(ending=time.monotonic())


def flushes_dead() -> None:
    """Flush, twice, against a collector that takes nothing; leave at once."""
    handle = queue_everything()
    for _ in range(2):
        started = time.monotonic()
        say(confirmed=handle.force_flush(400))
        say(flush_s=time.monotonic() - started)
    os._exit(0)


def flushes_while_closing() -> None:
    """Flush from one thread while another shuts down."""
    handle = queue_everything()
    shutting = threading.Thread(target=handle.shutdown, args=(500,))
    shutting.start()
    while not handle.is_shutdown:
        time.sleep(0.001)
    started = time.monotonic()
    handle.force_flush(30_000)
    say(flush_s=time.monotonic() - started)
    started = time.monotonic()
    handle.shutdown(500)
    say(second_shutdown_s=time.monotonic() - started)
    shutting.join()


if __name__ == "__main__":
    common.main(globals())
