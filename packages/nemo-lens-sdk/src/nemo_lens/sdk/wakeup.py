"""A thread that is woken in the moment a signal arrives, also while the main thread is in a C call.

Python runs a signal's handler in the main thread, between two steps of its bytecode: never while that thread is in a
collective or waits for a device. The byte that goes to the wakeup descriptor is written when the signal arrives.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable

from nemo_lens.api._diagnostics import debug_once

_NOBODYS = -1


class SignalWakeup:
    """Calls a function in a thread of its own for each arrival of a signal that has a handler written in Python.

    Use it in the main thread only, where Python allows the wakeup descriptor to be set.

    Args:
        number: the signal. Python writes of all signals; the others' bytes are dropped.
        call: called with no argument; it must not raise.
    """

    def __init__(self, number: int, call: Callable[[], None]) -> None:
        self._number = number
        self._call = call
        self._reading = self._writing = _NOBODYS

    def open(self) -> None:
        """Take the wakeup descriptor; do nothing where somebody has it, or where there is no thread or pipe to be had.

        One descriptor is all that Python has: an event loop that uses it would hear of no signal any more.
        """
        if self._writing != _NOBODYS or not _nobody_has_it():
            return
        try:
            self._reading, writing = os.pipe()
        except OSError as fault:
            debug_once("wakeup", "no pipe to be woken by a signal: %s", fault)
            return
        os.set_blocking(writing, False)
        try:
            threading.Thread(target=self._wait, name="nemo-lens-signal", daemon=True).start()
        except RuntimeError as fault:
            debug_once("wakeup", "no thread to be woken by a signal: %s", fault)
            os.close(self._reading)
            os.close(writing)
            return
        self._writing = writing
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def close(self) -> None:
        """Give the wakeup descriptor back, unless somebody else has taken it since, and end the thread.

        Who has taken it may put ours back later: then the pipe stays open, and the thread waits on.
        """
        if self._give_back():
            os.close(self._writing)  # the end of what the thread reads
            self._writing = _NOBODYS

    def close_in_child(self) -> None:
        """Close a forked child's ends of the pipe, whose thread is the parent's."""
        if self._give_back():
            os.close(self._writing)
            os.close(self._reading)
        self._reading = self._writing = _NOBODYS

    def _give_back(self) -> bool:
        if self._writing == _NOBODYS:
            return False
        present = signal.set_wakeup_fd(_NOBODYS)
        if present not in (self._writing, _NOBODYS):
            with contextlib.suppress(OSError, ValueError):  # closed since
                signal.set_wakeup_fd(present)
                return False
        return True

    def _wait(self) -> None:
        reading = self._reading
        while numbers := os.read(reading, 512):
            if self._number in numbers:
                self._call()
        os.close(reading)


def _nobody_has_it() -> bool:
    present = signal.set_wakeup_fd(_NOBODYS)
    if present != _NOBODYS:
        with contextlib.suppress(OSError, ValueError):  # closed since
            signal.set_wakeup_fd(present)
            return False
    return True


def default_action(number: int) -> Callable[[], None]:
    """Return what ends the process by a signal's default action, from any thread.

    ``signal.signal`` works in the main thread alone, so the default action is restored past Python. Where Python cannot
    call the C library, nothing is done; nor does a signal end the first process of a container.
    """
    try:
        import ctypes  # not everywhere there, and now: at the signal, a file system may be gone

        restore = ctypes.CDLL(None).signal
    except (AttributeError, ImportError, OSError) as fault:
        debug_once("default_action", "no C library to end the process by a signal: %r", fault)
        return lambda: None
    restore.argtypes, restore.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p

    def end() -> None:
        restore(number, None)  # SIG_DFL is the null pointer
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)

    return end
