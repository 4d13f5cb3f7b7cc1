"""NVML, with a limit on every wait: through ``pynvml`` (``nvidia-ml-py``), or for a count through the library alone.

A call into a sick driver may never return, and nothing can interrupt it. So each question runs in a daemon thread of
its own, which is left behind when time is up. While one is left behind no other is asked: it would hang as well.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

# NVML_ERROR_DRIVER_NOT_LOADED and NVML_ERROR_LIBRARY_NOT_FOUND.
_ABSENT = (9, 12)

_T = TypeVar("_T")


class NvmlUnavailableError(Exception):
    """NVML gave no answer; ``absent`` says that the package or the driver is not there, which is no fault."""

    def __init__(self, reason: str, *, absent: bool = False) -> None:
        super().__init__(reason)
        self.absent = absent


def import_pynvml() -> Any:
    """Return the module ``pynvml``, the full binding.

    Raises:
        NvmlUnavailableError: when it is not installed or cannot be imported.
    """
    try:
        return import_module("pynvml")
    except ModuleNotFoundError as fault:
        reason = f"nvidia-ml-py is not installed ({fault}): pip install 'nemo-lens-sdk[gpu]'"
        raise NvmlUnavailableError(reason, absent=True) from fault
    except Exception as fault:  # another package of that name, or its warning made an error
        raise NvmlUnavailableError(f"pynvml cannot be imported: {fault!r}") from fault


def load_library() -> SimpleNamespace:
    """Return what it takes to count GPUs, over the driver's library: importing ``pynvml`` takes 50 ms, in each rank.

    Raises:
        NvmlUnavailableError: when there is no NVIDIA driver.
    """
    import ctypes  # only where NVML is asked for the count

    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as fault:
        raise NvmlUnavailableError(f"there is no NVIDIA driver: {fault}", absent=True) from fault

    def call(function: str, *args: Any) -> None:
        code = getattr(library, function)(*args)
        if code:
            raise NvmlUnavailableError(f"NVML failed: {function} gave error {code}", absent=code in _ABSENT)

    def count() -> int:
        found = ctypes.c_uint()
        call("nvmlDeviceGetCount_v2", ctypes.byref(found))
        return found.value

    return SimpleNamespace(
        nvmlInit=partial(call, "nvmlInit_v2"), nvmlShutdown=partial(call, "nvmlShutdown"), nvmlDeviceGetCount=count
    )


class _Question(Generic[_T]):
    """One question in its own thread, between ``nvmlInit`` and ``nvmlShutdown``."""

    def __init__(self, binding: Any, question: Callable[[Any], _T]) -> None:
        self._binding = binding
        self._question = question
        self._answers: list[_T] = []
        self._fault: NvmlUnavailableError | None = None
        self.pid = os.getpid()
        self.asked_at = time.monotonic()
        self.left_behind = False
        self.thread = threading.Thread(target=self._run, name="nemo-lens-nvml", daemon=True)

    def _run(self) -> None:
        try:
            self._binding.nvmlInit()
            try:
                self._answers.append(self._question(self._binding))
            finally:
                self._binding.nvmlShutdown()
        except NvmlUnavailableError as fault:
            self._fault = fault
        except Exception as fault:  # noqa: BLE001 - goes to the thread that asked; repr, as str may call into NVML
            absent = getattr(fault, "value", None) in _ABSENT
            self._fault = NvmlUnavailableError(f"NVML failed: {fault!r}", absent=absent)
        finally:
            _asked.discard(self)

    def answer(self) -> _T:
        """Return the answer, also when ``nvmlShutdown`` failed or hangs after it."""
        if self._answers:
            return self._answers[0]
        raise self._fault or NvmlUnavailableError("NVML did not answer in time; the call is left behind")


# What is being asked. No lock guards it, so that a fork finds none taken: each thread adds and removes its own.
_asked: set[_Question[Any]] = set()


def ask(question: Callable[[Any], _T], within_s: float, open_binding: Callable[[], Any] = import_pynvml) -> _T:
    """Put a question to NVML and wait for the answer.

    Args:
        question: called with the binding, in a thread of its own, with NVML started.
        within_s: seconds to wait, those of ``open_binding`` counted. When an earlier question is still left without an
            answer, they are counted from when that one was asked: what hangs is waited for once.
        open_binding: gives NVML's functions under ``pynvml``'s names.

    Returns:
        What ``question`` returned.

    Raises:
        NvmlUnavailableError: when NVML is not there, failed, or did not answer in time.
    """
    deadline = time.monotonic() + within_s
    for earlier in tuple(_asked):
        if earlier.pid != os.getpid():
            # The thread is not here, but locks of the driver's library may be held by it for ever.
            raise NvmlUnavailableError("NVML was being asked when this process was forked, and is not asked again")
        if earlier.left_behind:
            earlier.thread.join(max(0.0, earlier.asked_at + within_s - time.monotonic()))
            if earlier in _asked:
                raise NvmlUnavailableError("NVML has not answered an earlier question yet, and is not asked again")
    # In this thread, not in the one that may be left behind: a child forked meanwhile could never import it again.
    asked = _Question(open_binding(), question)
    _asked.add(asked)
    try:
        asked.thread.start()
    except RuntimeError as fault:
        _asked.discard(asked)
        raise NvmlUnavailableError(f"no thread to ask NVML in: {fault}") from fault
    try:
        asked.thread.join(max(0.0, deadline - time.monotonic()))
    finally:
        asked.left_behind = True
    return asked.answer()
