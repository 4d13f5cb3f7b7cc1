"""A job that records metrics of every kind and logs in threads all the while, and whose many children do the same."""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

import common
from common import say

from nemo_lens.api import get_telemetry, managed_span
from nemo_lens.api.instruments import (
    MetricSpec,
    create_metric_instruments,
    record_metrics,
    register_metric_group,
    registered_metric_groups,
)

_log = logging.getLogger("application.family")
# What a process observes of itself: not its parent's, and nothing before it says so.
_observed: dict[int, int] = {}
# A child that hangs says where, and dies.
CHILD_LIMIT_S = int(os.environ.get("LIM", "25"))


def observe() -> list[tuple[int, dict[str, str]]] | None:
    """Return the observation of this process, once it has one."""
    value = _observed.get(os.getpid())
    return None if value is None else [(value, {"role": "observed"})]


def register(group: str) -> None:
    """Register a group with one metric of each kind, named after it."""
    register_metric_group(
        group,
        [
            MetricSpec("gauge", f"{group}.gauge", "gauge"),
            MetricSpec("histogram", f"{group}.histogram", "histogram", buckets=(1, 2, 4)),
            MetricSpec("counter", f"{group}.counter", "counter"),
            MetricSpec("up_down_counter", f"{group}.up_down_counter", "up_down_counter"),
            *(
                MetricSpec(kind, f"{group}.{kind}", kind, callback=observe)
                for kind in ("observable_gauge", "observable_counter", "observable_up_down_counter")
            ),
        ],
    )


def record(meter: Any, group: str, number: int, role: str) -> None:
    """Record one value of each kind, and log."""
    record_metrics(
        meter,
        group,
        attributes={"role": role},
        gauge=number,
        histogram=number % 5,
        counter=1,
        up_down_counter=3 if number % 2 else -1,
    )
    _log.info("%s %d %s %d", group, os.getpid(), role, number)


def tell(role: str, group: str, times: int, born: int) -> None:
    """Tell the test what this process has recorded in one go."""
    say(
        worker=os.getpid(),
        role=role,
        group=group,
        times=times,
        sum=sum(number % 5 for number in range(times)),
        up_down=sum(3 if number % 2 else -1 for number in range(times)),
        observed=_observed.get(os.getpid(), 0),
        born=born,
        exporting=get_telemetry().is_exporting,
    )


def work(role: str, times: int) -> int:
    """Record into the parent's group, whose instruments are there already, and into one of this process's own."""
    born = time.time_ns()
    meter = get_telemetry().meter
    _observed[os.getpid()] = 100 + times
    for group in ("inherited", "own"):
        if group not in registered_metric_groups():
            register(group)
        create_metric_instruments(meter, group)
        for number in range(times):
            record(meter, group, number, role)
        tell(role, group, times, born)
    return os.getpid()


def child(number: int) -> None:
    """Be a child, for at most so long."""
    signal.alarm(CHILD_LIMIT_S)
    faulthandler.dump_traceback_later(CHILD_LIMIT_S - 5)
    work(f"child {number}", 3 + number % 4)


def _forked(number: int) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child(number)
            code = 0 if get_telemetry().force_flush(15_000) else 2
        finally:
            os._exit(code)
    return pid


def _parent_thread(meter: Any, number: int, stop: threading.Event) -> None:
    role, made = f"thread {number}", 0
    while not stop.is_set():
        record(meter, "inherited", made, role)
        made += 1
        time.sleep(0.002)  # or the children hardly get a turn
    tell(role, "inherited", made, 0)


def start_job() -> Any:
    """Set up, with logs at INFO."""
    logging.getLogger("application").setLevel(logging.INFO)
    return common.set_up(logs_enabled=True)


def forks(children: str, rounds: str) -> None:
    """Children by os.fork, which flush, and by multiprocessing and its pools, which leave by os._exit."""
    handle = start_job()
    register("inherited")
    create_metric_instruments(handle.meter, "inherited")
    _observed[os.getpid()] = 7
    stop = threading.Event()
    threads = [threading.Thread(target=_parent_thread, args=(handle.meter, number, stop)) for number in range(2)]
    for thread in threads:
        thread.start()
    codes: list[int | None] = []
    context = multiprocessing.get_context("fork")
    for round_number in range(int(rounds)):
        pooled = int(children) // 5
        with context.Pool(2) as pool:
            tasks = pool.map_async(child, range(pooled), chunksize=1)
            waiting: list[Any] = []
            for number in range(pooled, int(children)):
                if number % 2:
                    waiting.append(_forked(number))
                else:
                    process = context.Process(target=child, args=(number,))
                    process.start()
                    waiting.append(process)
                if len(waiting) == 6:
                    codes.append(_ended(waiting.pop(0)))
            codes += [_ended(one) for one in waiting]
            tasks.get(60)
            pool.close()
            pool.join()
        say(round=round_number)
    stop.set()
    for thread in threads:
        thread.join()
    say(parent=os.getpid(), codes=codes, confirmed=handle.force_flush(15_000))
    handle.shutdown(15_000)


def _ended(one: Any) -> int | None:
    if isinstance(one, int):
        return os.waitstatus_to_exitcode(os.waitpid(one, 0)[1])
    one.join()
    code: int | None = one.exitcode
    return code


# ---- forks in awkward moments


def half_made(kind: str) -> None:
    """Fork while another thread is in the middle of making an instrument, which the child then makes."""
    handle = start_job()
    name = f"inherited.{kind}"
    entered, go_on = threading.Event(), threading.Event()

    def pause(frame: FrameType, event: str, arg: object) -> None:
        # The meter has taken the name by now, and has no instrument under it yet.
        given = frame.f_locals
        if frame.f_code.co_name == "__init__" and given.get("name") == name and "measurement_consumer" in given:
            sys.settrace(None)
            entered.set()
            go_on.wait()

    def make() -> None:
        sys.settrace(pause)
        work("parent", 4)

    making = threading.Thread(target=make)
    making.start()
    entered.wait()
    codes = [_ended(_forked(5))]
    go_on.set()
    making.join()
    say(codes=codes, confirmed=handle.force_flush(15_000))


def slow_callback() -> None:
    """Fork while a callback runs in the parent, and takes its time; in the child it is fast."""
    parent, running, release = os.getpid(), threading.Event(), threading.Event()

    def measure() -> int:
        if os.getpid() == parent:
            running.set()
            release.wait()
        return os.getpid()

    handle = common.set_up(logs_enabled=True)
    assert handle.force_flush()
    register_metric_group("slow", [MetricSpec("pid", "pid", "observable_gauge", callback=measure)])
    create_metric_instruments(handle.meter, "slow")
    collecting = threading.Thread(target=handle.force_flush, args=(15_000,))
    collecting.start()
    running.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(CHILD_LIMIT_S)
        confirmed = get_telemetry().force_flush(15_000)
        say(worker=os.getpid(), confirmed=confirmed, exporting=get_telemetry().is_exporting)
        os._exit(0)
    codes = [_ended(pid)]
    release.set()
    collecting.join()
    say(parent=parent, codes=codes, delivered=handle.force_flush(15_000))


def host_lock() -> None:
    """Fork while another thread holds the lock of a host application's logger provider; the child logs."""
    from opentelemetry import _logs
    from opentelemetry.sdk._logs import LoggerProvider

    provider = LoggerProvider(shutdown_on_exit=False)
    _logs.set_logger_provider(provider)
    handle = start_job()
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with provider._logger_cache_lock:
            held.set()
            go_on.wait()

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait()
    codes = [_ended(_forked(5))]
    go_on.set()
    holding.join()
    work("parent", 4)
    say(codes=codes, confirmed=handle.force_flush(15_000))


def late_imports() -> None:
    """Tell what the first export of each signal imports."""
    handle = start_job()
    before = set(sys.modules)
    with managed_span("work", "done"):
        work("parent", 4)
    confirmed = handle.force_flush(15_000)
    say(confirmed=confirmed, imported=sorted(set(sys.modules) - before))


def apart(method: str, children: str) -> None:
    """Children of spawn or forkserver, which set up for themselves and end without a shutdown."""
    handle = start_job()
    work("parent", 4)
    context = multiprocessing.get_context(method)
    processes = [context.Process(target=child_apart, args=(number,)) for number in range(int(children))]
    for process in processes:
        process.start()
    codes = [_ended(process) for process in processes]
    say(parent=os.getpid(), codes=codes, confirmed=handle.force_flush(15_000))


def child_apart(number: int) -> None:
    logging.getLogger("application").setLevel(logging.INFO)
    common.set_up(rank=10 + number, logs_enabled=True)
    child(number)


if __name__ == "__main__":
    common.main(globals())
