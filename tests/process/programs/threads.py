"""Forks while other threads are in the middle of everything."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

import common
from common import say

from nemo_lens.api import SpanRegistry, get_telemetry, managed_span

_log = logging.getLogger("application")


def _hammer(handle: Any, stop: threading.Event, counted: list[int], number: int) -> None:
    made = 0
    meters = handle.meter_provider
    # Instruments are the thread's own: two threads at the same one, new, can raise KeyError in the SDK.
    counter = handle.meter.create_counter(f"hammered.{number}")
    while not stop.is_set():
        made += 1
        with managed_span("work", "outer"), managed_span("work", "inner", made=made):
            counter.add(1)
        # Each makes the SDK or the API take a lock of its own.
        meters.get_meter(f"meter {made % 10}").create_counter(f"counter.{number}.{made % 7}").add(1)
        handle.tracer_provider.get_tracer(f"tracer {made % 10}")
        SpanRegistry.register(f"namespace {made % 3}", ["extra"], allow_override=True)
        _log.debug("never shown")
        if made % 50 == 0:
            common.write_log(handle, "hammered")
            time.sleep(0.001)  # or the forking thread and the exports hardly get a turn
    counted[number] = made


def _ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def forks_against_threads(forks: str) -> None:
    """Fork again and again against threads that use all of telemetry; each child uses all of it, too."""
    handle = common.set_up(logs_enabled=True)
    sys.setswitchinterval(1e-5)
    stop = threading.Event()
    counted = [0, 0]
    threads = [threading.Thread(target=_hammer, args=(handle, stop, counted, number)) for number in range(2)]
    for thread in threads:
        thread.start()
    codes: list[int] = []
    running: list[int] = []
    for number in range(int(forks)):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.alarm(20)
                faulthandler.dump_traceback_later(15)
                with managed_span("work", "child", number=number):
                    handle.meter.create_counter("of.children").add(1)
                    handle.meter_provider.get_meter("fresh").create_histogram("fresh").record(1)
                    common.write_log(handle, "child")
                code = 0 if get_telemetry().force_flush(15_000) else 2
            finally:
                os._exit(code)
        running.append(pid)
        if len(running) == 4:
            codes.append(_ended(running.pop(0)))
    codes += [_ended(pid) for pid in running]
    stop.set()
    for thread in threads:
        thread.join()
    say(codes=codes, iterations=sum(counted))


def forking_threads(threads: str, forks: str) -> None:
    """Several threads fork at a time, next to exports and a slow hook of another library's."""
    # Registered before ours, so run after it: one fork's hold outlasts another's wait.
    os.register_at_fork(before=lambda: time.sleep(0.15))
    handle = common.set_up(logs_enabled=True)
    stop = threading.Event()

    def flush() -> None:
        while not stop.is_set():
            with managed_span("work", "flushed"):
                pass
            handle.force_flush(1000)

    def fork() -> None:
        for _ in range(int(forks)):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)

    flushing = threading.Thread(target=flush)
    forking = [threading.Thread(target=fork) for _ in range(int(threads))]
    for thread in [flushing, *forking]:
        thread.start()
    for thread in forking:
        thread.join()
    stop.set()
    flushing.join()
    with managed_span("work", "last"):
        pass
    say(confirmed=handle.force_flush(5000))


if __name__ == "__main__":
    common.main(globals())
