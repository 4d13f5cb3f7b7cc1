"""The metric registry under threads that register, record and unregister, beside collections and forks."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import threading
import time
from typing import Any

import common
from common import say

from nemo_lens.api import get_telemetry, managed_span
from nemo_lens.api.instruments import (
    MetricSpec,
    create_metric_instruments,
    record_metrics,
    register_metric_group,
    unregister_metric_group,
)

THREADS = 8
# Made by all threads at once, in the first moment.
FIRST = [f"first_{number}" for number in range(200)]
# Recorded into a group that its only owner has unregistered: must not count.
NEVER = 1_000_000
CHILD_LIMIT_S = 25


def own_specs(name: str, *more: str) -> list[MetricSpec]:
    """Return the metrics of a thread's own group, new objects each time, with a callback that is new, too."""
    alive = object()
    return [
        MetricSpec("counter", f"{name}.counter", "counter"),
        MetricSpec("up_down_counter", f"{name}.up_down_counter", "up_down_counter"),
        MetricSpec("histogram", f"{name}.histogram", "histogram", buckets=(1, 4, 16)),
        MetricSpec("observed", f"{name}.observed", "observable_gauge", callback=lambda: int(alive is not None)),
        *(MetricSpec(key, f"{name}.{key}", "counter") for key in more),
    ]


class Worker:
    """Registers, records and unregisters in turn, and knows what must have been counted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cycles = 0
        self.own = 0
        self.extra = 0
        self.shared = 0

    def cycle(self, meter: Any) -> None:
        """Register the thread's own group, record into it and into the shared ones, unregister it."""
        name, number = self.name, self.cycles
        self.cycles += 1
        register_metric_group(name, own_specs(name))
        create_metric_instruments(meter, name)
        for value in range(1 + number % 3):
            record_metrics(
                meter, name, attributes={"odd": bool(value % 2)}, counter=2, up_down_counter=1 - value, histogram=value
            )
            record_metrics(meter, "shared", counter=1, histogram=1)
            self.own += 1
            self.shared += 1
        if number % 4 == 0:
            register_metric_group(name, own_specs(name, "extra"), allow_override=True)
            record_metrics(meter, name, {"extra": 1})
            self.extra += 1
        # Registered or not, by another thread: counted or not, and no error.
        record_metrics(meter, "contested", counter=1)
        unregister_metric_group(name)
        record_metrics(meter, name, counter=NEVER)
        if number % 20 == 0:
            time.sleep(0.001)  # or forks and collections hardly get a turn

    def tell(self) -> None:
        """Tell the test what must have been counted."""
        say(worker=os.getpid(), name=self.name, cycles=self.cycles, own=self.own, extra=self.extra, shared=self.shared)


def _register_shared() -> None:
    register_metric_group(
        "shared",
        [MetricSpec("counter", "shared.counter", "counter"), MetricSpec("histogram", "shared.histogram", "histogram")],
    )


def _contest(stop: threading.Event) -> None:
    while not stop.is_set():
        register_metric_group("contested", [MetricSpec("counter", "contested.counter", "counter")])
        time.sleep(0.0005)
        unregister_metric_group("contested")


def _child() -> None:
    signal.alarm(CHILD_LIMIT_S)
    faulthandler.dump_traceback_later(CHILD_LIMIT_S - 5)
    worker = Worker("own.child")
    for _ in range(5):
        worker.cycle(get_telemetry().meter)
    worker.tell()
    os._exit(0 if get_telemetry().force_flush(15_000) else 2)


def _allocated() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def hammer(seconds: str) -> None:
    """Have eight threads at it, next to one that contests a group, and fork now and then."""
    handle = common.set_up(span_groups="all")
    _register_shared()
    failed: list[str] = []
    threading.excepthook = lambda given: failed.append(f"{given.thread}: {given.exc_value!r}")
    sys.setswitchinterval(1e-4)
    register_metric_group("first", [MetricSpec(name, name, "counter") for name in FIRST])
    stop, together = threading.Event(), threading.Barrier(THREADS)
    workers = [Worker(f"own.{number}") for number in range(THREADS)]

    def work(worker: Worker) -> None:
        # In a sampled span measurements are offered as exemplars, too.
        with managed_span("work", worker.name):
            together.wait()
            for name in FIRST:
                record_metrics(handle.meter, "first", {name: 1})
            while not stop.is_set():
                worker.cycle(handle.meter)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    threads.append(threading.Thread(target=_contest, args=(stop,)))
    for thread in threads:
        thread.start()
    started = time.monotonic()
    settled: tuple[int, int] | None = None
    codes: list[int] = []
    while time.monotonic() - started < float(seconds):
        pid = os.fork()
        if pid == 0:
            _child()
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if settled is None and time.monotonic() - started > float(seconds) / 4:
            settled = (sum(worker.cycles for worker in workers), _allocated())
        time.sleep(0.2)
    cycles, blocks = sum(worker.cycles for worker in workers), _allocated()
    stop.set()
    for thread in threads:
        thread.join()
    if settled is not None:
        say(grown_cycles=cycles - settled[0], grown_blocks=blocks - settled[1])
    for worker in workers:
        worker.tell()
    say(parent=os.getpid(), codes=codes, failed=failed, confirmed=handle.force_flush(15_000))
    for worker in workers:  # of no group that is still registered
        record_metrics(handle.meter, worker.name, counter=NEVER)
    say(flushed_at=time.time_ns())
    handle.shutdown(15_000)


if __name__ == "__main__":
    common.main(globals())
