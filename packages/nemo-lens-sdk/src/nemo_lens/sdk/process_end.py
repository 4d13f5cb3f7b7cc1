"""Being called when the process ends: at interpreter exit, and where multiprocessing ends a child past that."""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


def at_exit(owner: _T, close: Callable[[_T], None]) -> Callable[[], None]:
    """Have ``close(owner)`` called when the interpreter exits, unless ``owner`` is gone by then.

    Returns:
        What takes the call back.
    """
    call = _Call(owner, close)
    # urllib3 closes its sockets by weakref.finalize, whose own function at exit must be there before ours, to come
    # after it.
    weakref.finalize(owner, call).detach()
    atexit.register(call)
    return lambda: atexit.unregister(call)


def at_multiprocessing_exit(owner: _T, close: Callable[[_T], None]) -> None:
    """Have ``close(owner)`` called when a multiprocessing child ends, which it does by ``os._exit``, past ``atexit``.

    The child's bootstrap clears finalizers and then runs what was registered for after the fork, so the finalizer is
    set from there.

    Called at set-up too: a child may set up after its bootstrap, and a fork server's while it imports the main module,
    before.

    Args:
        owner: keeps the registration alive for as long as it lives.
        close: what to call.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return
    set_finalizer = _FinalizerSetter(_Call(owner, close))
    util.register_after_fork(owner, set_finalizer)
    if sys.modules["multiprocessing.process"].parent_process() is not None:
        set_finalizer(owner)


class _Call(Generic[_T]):
    # No WeakMethod, and no callback: at the very end of the interpreter, of whose modules nothing is left, such a
    # callback fails, and Python says so.
    def __init__(self, owner: _T, close: Callable[[_T], None]) -> None:
        self._owner = weakref.ref(owner)
        self._close = close

    def __call__(self) -> None:
        owner = self._owner()
        if owner is not None:
            self._close(owner)


class _FinalizerSetter:
    # Registered with multiprocessing by identity, so hashable.
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __call__(self, owner: object) -> None:
        from multiprocessing.util import Finalize  # loaded already: this runs from it

        # Before the finalizers of queues and managers, which have no priority or priority 0 and up to 10.
        Finalize(None, self._call, exitpriority=100)
