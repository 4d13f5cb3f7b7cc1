"""A job with a queued span, an open span, a counter and a log record, whose children do the same."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import common
from common import say

from nemo_lens.api import get_telemetry, inject_context, managed_span, setup_telemetry, span_cm

CHILDREN = 3


def work(name: str, amount: int) -> int:
    """One span, one measurement, one log record; tell the test which process did it."""
    handle = get_telemetry()
    # On every rank and in every child alike, as a training script does it.
    random.seed(7)
    with managed_span("work", name):
        handle.meter.create_counter("done").add(amount)
        common.write_log(handle, name)
    say(worker=os.getpid(), name=name, amount=amount)
    return os.getpid()


def start_job() -> Any:
    """Set up and leave something in every queue."""
    from opentelemetry.metrics import Observation

    handle = common.set_up(logs_enabled=True)
    handle.meter.create_observable_gauge("pid", [lambda options: [Observation(os.getpid())]])
    work("queued", 5)
    say(parent=os.getpid())
    return handle


def reap(pids: list[int]) -> None:
    """Wait for forked children; tell how each ended."""
    say(codes=[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])


def fork(body: Any, *args: Any) -> int:
    """Fork a child that runs ``body`` and leaves without Python's exit."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body(*args)
            code = 0
        finally:
            os._exit(code)
    return pid


# ---- ends of children


def os_exit() -> None:
    """Children that flush through the public call and leave by os._exit."""

    def body(number: int) -> None:
        work(f"child {number}", 3)
        assert get_telemetry().force_flush()

    start_job()
    with managed_span("work", "open at fork"):
        reap([fork(body, number) for number in range(CHILDREN)])


def sys_exit() -> None:
    """Children that end as a script does."""
    start_job()
    pids = []
    with managed_span("work", "open at fork"):
        for number in range(CHILDREN):
            pid = os.fork()
            if pid == 0:
                work(f"child {number}", 3)
                sys.exit(0)  # leaves the parent's open span on the way
            pids.append(pid)
        reap(pids)


def processes(method: str) -> None:
    """Children of multiprocessing: forked ones go on with the parent's telemetry, others set up their own."""
    start_job()
    context = multiprocessing.get_context(method)
    body = work if method == "fork" else spawned_work
    with managed_span("work", "open at fork"):
        children = [context.Process(target=body, args=(f"child {number}", 3)) for number in range(CHILDREN)]
        for child in children:
            child.start()
        for child in children:
            child.join()
    say(codes=[child.exitcode for child in children])


def spawned_work(name: str, amount: int) -> None:
    common.set_up(rank=int(name.split()[1]) + 10, logs_enabled=True)
    work(name, amount)


def pool() -> None:
    """Workers of a pool that is closed and joined."""
    start_job()
    with managed_span("work", "open at fork"):
        workers = multiprocessing.get_context("fork").Pool(2)
        workers.starmap(work, [(f"child {number}", 3) for number in range(CHILDREN)], chunksize=1)
        workers.close()
        workers.join()
    say(codes=[])


def terminated() -> None:
    """Children that install a handler of their own and are ended by SIGTERM."""

    def body(number: int) -> None:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        get_telemetry().install_sigterm_handler()
        work(f"child {number}", 3)
        os.kill(os.getpid(), signal.SIGTERM)

    handle = start_job()
    handle.install_sigterm_handler()
    installed = signal.getsignal(signal.SIGTERM)
    with managed_span("work", "open at fork"):
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=body, args=(number,)) for number in range(CHILDREN)]
        for child in children:
            child.start()
        for child in children:
            child.join()
    assert signal.getsignal(signal.SIGTERM) == installed
    say(codes=[child.exitcode + signal.SIGTERM for child in children])


def terminated_at_once() -> None:
    """A child that gets SIGTERM before anything of ours has run in it; the parent still answers its own."""
    child_dies = True

    def die() -> None:
        if child_dies:
            os.kill(os.getpid(), signal.SIGTERM)

    os.register_at_fork(after_in_child=die)  # before set-up: it runs before the hooks of telemetry
    handle = start_job()
    handle.install_sigterm_handler(20_000)
    began = time.monotonic()
    reap([fork(work, "never done", 1)])
    say(child_s=time.monotonic() - began)
    child_dies = False
    reap([fork(work, "done", 1)])
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    say(blocked=sorted(map(int, blocked)))
    work("last", 1)
    os.kill(os.getpid(), signal.SIGTERM)


def terminated_pool() -> None:
    """A pool that ends its workers by SIGTERM while the parent has a handler for it."""
    handle = start_job()
    handle.install_sigterm_handler()
    with multiprocessing.get_context("fork").Pool(4) as workers:
        actions = set(workers.map(_sigterm_action, range(8)))
        say(actions=sorted(actions))


def _sigterm_action(number: int) -> int:
    with managed_span("work", f"task {number}"):
        return int(signal.getsignal(signal.SIGTERM))


def executor() -> None:
    """Workers of concurrent.futures."""
    start_job()
    context = multiprocessing.get_context("fork")
    with managed_span("work", "open at fork"), ProcessPoolExecutor(2, mp_context=context) as workers:
        list(workers.map(work, [f"child {number}" for number in range(CHILDREN)], [3] * CHILDREN))
    say(codes=[])


def raising() -> None:
    """Children that end by an exception."""
    start_job()
    context = multiprocessing.get_context("fork")
    with managed_span("work", "open at fork"):
        children = [context.Process(target=work_and_fail, args=(number,)) for number in range(CHILDREN)]
        for child in children:
            child.start()
        for child in children:
            child.join()
    say(codes=[1 - child.exitcode for child in children])


def work_and_fail(number: int) -> None:
    work(f"child {number}", 3)
    raise RuntimeError("the worker's own")


# ---- families


def grandchildren() -> None:
    """A forked child that forks, and a multiprocessing child whose own child is one, too."""
    start_job()
    with managed_span("work", "open at fork"):
        pid = os.fork()
        if pid == 0:
            work("child 0", 3)
            reap([fork(lambda: (work("grandchild 0", 2), get_telemetry().force_flush()))])
            sys.exit(0)
        child = multiprocessing.get_context("fork").Process(target=child_with_child)
        child.start()
        child.join()
        reap([pid])


def child_with_child() -> None:
    work("child 1", 3)
    with managed_span("work", "open in child"):
        inner = multiprocessing.get_context("fork").Process(target=work, args=("grandchild 1", 2))
        inner.start()
        inner.join()


def from_environment(rank: str) -> None:
    """A spawned child that knows of the job only through ``to_env`` and the trace context in the environment."""
    config = common.NemoLensConfig.from_env()
    config.enabled, config.run_id, config.service_name = True, "run-of-parent", "of-parent"
    config.logs_enabled, config.span_groups, config.user = True, "all", "ada"
    common.SpanRegistry.register("process", ["work"])
    setup_telemetry(config, resource_attributes={"nv.dl.rank": int(rank)})
    for name in [name for name in os.environ if name.startswith("NEMO_LENS")]:
        del os.environ[name]
    with managed_span("work", "parent"):
        os.environ.update(config.to_env())
        inject_context(os.environ)
        child = multiprocessing.get_context("spawn").Process(target=worker_of_environment)
        child.start()
        child.join()
    say(parent=os.getpid(), codes=[child.exitcode])


def worker_of_environment() -> None:
    setup_telemetry(resource_attributes={"nv.dl.rank": 5})
    common.SpanRegistry.register("process", ["work"])
    work("child", 3)


def without_a_set_up() -> None:
    """A spawned worker that uses all of telemetry and never set it up."""
    start_job()
    child = multiprocessing.get_context("spawn").Process(target=unaware_worker)
    child.start()
    child.join()
    say(codes=[child.exitcode])


def unaware_worker() -> None:
    with managed_span("work", "of the unaware") as span:
        assert span is None
    with span_cm("of the unaware") as span:
        span.set_attribute("key", 1)
    handle = get_telemetry()
    handle.tracer.start_span("of the unaware").end()
    handle.meter.create_counter("done").add(1)
    assert handle.force_flush(100)
    assert not handle.is_exporting
    handle.shutdown()


def open_span_left_in_child() -> None:
    """A generator of forks: the child returns out of the parent's ``with`` block, as a fork in a helper does."""

    def forked() -> int:
        with managed_span("work", "open at fork") as span:
            span.set_attribute("before", True)
            return os.fork()

    start_job()
    pid = forked()
    if pid == 0:
        assert get_telemetry().force_flush()
        os._exit(0)
    reap([pid])


def child_sets_up() -> None:
    """Children that, having inherited telemetry, set it up for themselves."""
    start_job()
    child = multiprocessing.get_context("fork").Process(target=set_up_in_child)
    child.start()
    child.join()
    say(codes=[child.exitcode])


def set_up_in_child() -> None:
    work("before own setup", 3)
    inherited = get_telemetry()
    with managed_span("work", "open at own setup"):
        handle = common.set_up(rank=8, logs_enabled=True)
    assert get_telemetry() is handle is not inherited
    assert inherited.is_shutdown
    work("after own setup", 4)
    say(threads=sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("nemo-lens")))


# ---- exports under way


def exporting() -> None:
    """A parent that has exported before it forks, children that export, a parent that exports again."""
    handle = start_job()
    assert handle.force_flush()

    def body(number: int) -> None:
        work(f"child {number}", 3)
        assert get_telemetry().force_flush()
        work(f"again {number}", 4)

    with managed_span("work", "open at fork"):
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=body, args=(number,)) for number in range(CHILDREN)]
        for child in children:
            child.start()
        assert handle.force_flush()
        work("meanwhile", 1)
        for child in children:
            child.join()
    say(codes=[child.exitcode for child in children])


def hanging_export() -> None:
    """A fork while an export hangs; the test mends the collector before the child exports."""
    handle = common.set_up(logs_enabled=True)
    with managed_span("work", "in flight"):
        pass
    handle.force_flush(300)
    say(parent=os.getpid(), hanging=True)
    common.wait_for_test()
    started = time.monotonic()

    def body() -> None:
        say(fork_s=time.monotonic() - started, forked=True)
        common.wait_for_test()
        work("child", 3)
        flushing = time.monotonic()
        confirmed = get_telemetry().force_flush(30_000)
        say(confirmed=confirmed, flush_s=time.monotonic() - flushing, exporting=get_telemetry().is_exporting)
        get_telemetry().shutdown()

    reap([fork(body)])
    say(parent_confirmed=handle.force_flush(30_000))


def workers_of_a_dead_collector() -> None:
    """A worker for each epoch, of a parent that exports, or tries to, before the first."""
    handle = common.set_up()
    with managed_span("work", "parent"):
        pass
    say(parent_confirmed=handle.force_flush(1000))

    def load() -> None:
        with managed_span("work", "load"):
            pass

    for _ in range(2):
        worker = multiprocessing.get_context("fork").Process(target=load)
        started = time.monotonic()
        worker.start()
        worker.join()
        say(worker_s=time.monotonic() - started, code=worker.exitcode)
    handle.shutdown(0)


def closing() -> None:
    """A fork while the parent's shutdown waits for its collector: the child belongs to no run."""
    handle = common.set_up(logs_enabled=True)
    counter = handle.meter.create_counter("done")
    counter.add(1)
    tracer = handle.tracer
    shutting = threading.Thread(target=handle.shutdown, args=(15_000,), daemon=True)
    shutting.start()
    time.sleep(0.5)  # until it waits for the collector
    assert handle.is_shutdown
    assert shutting.is_alive()

    def body() -> None:
        tracer.start_span("of nobody").end()
        counter.add(1)
        assert get_telemetry() is not handle
        sys.exit(0)

    forking = time.monotonic()
    pid = os.fork()
    if pid == 0:
        body()
    reap([pid])
    say(child_s=time.monotonic() - forking)
    shutting.join()


if __name__ == "__main__":
    common.main(globals())
