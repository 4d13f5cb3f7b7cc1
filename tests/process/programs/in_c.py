"""Processes that get signals while their main thread is in a C call, where Python runs no handler."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import threading
import time
from typing import Any

import common
from common import say

from nemo_lens.api import managed_span


class Stuck:
    """A C call that no signal ends: the lock of a mutex that is locked."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._mutex = ctypes.create_string_buffer(128)  # zeros, a mutex of the default kind
        self._libc.pthread_mutex_lock(self._mutex)

    def enter(self) -> None:
        """Stay here until another thread calls ``leave``; say ready about when this has begun."""
        threading.Timer(0.2, lambda: say(ready=os.getpid())).start()
        self._libc.pthread_mutex_lock(self._mutex)

    def leave(self) -> None:
        """Let the main thread go on."""
        self._libc.pthread_mutex_unlock(self._mutex)

    def leave_when_told(self) -> None:
        """Let the main thread go on when the test says so."""
        threading.Thread(target=lambda: (common.wait_for_test(), self.leave()), daemon=True).start()


def begin() -> Any:
    """Set up, finish one span, measure, log."""
    handle = common.set_up(logs_enabled=True)
    with managed_span("work", "done"):
        handle.meter.create_counter("done").add(2)
        common.write_log(handle, "done")
    return handle


def terminated(timeout_ms: str = "2000") -> None:
    """Get SIGTERM in a C call that never ends."""
    begin().install_sigterm_handler(int(timeout_ms))
    with managed_span("work", "run"), managed_span("work", "step"):
        Stuck().enter()


def terminated_in_lock() -> None:
    """Get SIGTERM in a C call that never ends, with the lock of an open span held."""
    begin().install_sigterm_handler(500)
    with managed_span("work", "run") as span, span._lock:
        Stuck().enter()


def stay_in_c_until_told() -> None:
    """Record a span around a C call that ends when the test says so."""
    stuck = Stuck()
    stuck.leave_when_told()
    with managed_span("work", "run"):
        stuck.enter()
    say(went_on=True)


def terminated_with_handler() -> None:
    """Get SIGTERM in a C call, with the application's own handler behind ours; go on when the call ends."""
    signal.signal(signal.SIGTERM, lambda number, frame: say(own=number))
    begin().install_sigterm_handler()
    stay_in_c_until_told()


def other_signal() -> None:
    """Get a signal that is not SIGTERM in a C call."""
    signal.signal(signal.SIGUSR1, lambda number, frame: say(own=number))
    begin().install_sigterm_handler()
    stay_in_c_until_told()


def beside_event_loop(first: str) -> None:
    """Serve signals in an event loop that takes the wakeup descriptor before us or after us; then get SIGTERM."""

    async def serve() -> None:
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        if first == "ours":
            handle.install_sigterm_handler()
        loop.add_signal_handler(signal.SIGUSR1, heard.set)
        if first == "loop":
            handle.install_sigterm_handler()
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(heard.wait(), 20)
        say(heard=True)
        with managed_span("work", "run"):
            os.kill(os.getpid(), signal.SIGTERM)

    handle = begin()
    asyncio.run(serve())


def gives_wakeup_back() -> None:
    """Shut down: the wakeup descriptor is nobody's again, or still that of who took it since; the threads end."""
    handle = begin()
    handle.install_sigterm_handler()
    handle.shutdown()
    say(left=signal.set_wakeup_fd(-1))
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    handle = common.set_up()
    handle.install_sigterm_handler()
    signal.set_wakeup_fd(theirs.fileno())
    handle.shutdown()
    say(kept=signal.set_wakeup_fd(-1) == theirs.fileno())
    handle = common.set_up()
    handle.install_sigterm_handler()
    handle.shutdown()
    ours.close()
    theirs.close()
    say(threads=_threads_after(20))


def _threads_after(limit_s: float) -> int:
    # One stays for the second run: who took its descriptor may put it back.
    deadline = time.monotonic() + limit_s
    while True:
        alive = [thread for thread in threading.enumerate() if thread.name in ("nemo-lens-signal", "nemo-lens-sigterm")]
        if len(alive) <= 1 or time.monotonic() > deadline:
            return len(alive)
        time.sleep(0.01)


def shut_down_elsewhere() -> None:
    """Shut down in another thread, where SIGTERM cannot be given back; then get it in a C call."""
    handle = begin()
    handle.install_sigterm_handler()
    thread = threading.Thread(target=handle.shutdown)
    thread.start()
    thread.join()
    Stuck().enter()


def children() -> None:
    """Fork children that get SIGTERM: one with a handler of its own, one that installs ours and is in a C call."""
    handle = begin()
    handle.install_sigterm_handler()
    ended = []
    for body in (_handles_sigterm_itself, _is_terminated_in_c):
        child = os.fork()
        if child == 0:
            body(handle)
            os._exit(1)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    say(ended=ended)
    with managed_span("work", "parent"):
        Stuck().enter()


def _handles_sigterm_itself(handle: Any) -> None:
    say(childs_wakeup=signal.set_wakeup_fd(-1))
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(3))
    while True:
        os.kill(os.getpid(), signal.SIGTERM)


def _is_terminated_in_c(handle: Any) -> None:
    handle.install_sigterm_handler()
    here = os.getpid()
    threading.Timer(0.2, lambda: os.kill(here, signal.SIGTERM)).start()
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    with managed_span("work", "child"):
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)


if __name__ == "__main__":
    common.main(globals())
