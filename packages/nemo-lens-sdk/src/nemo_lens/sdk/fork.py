"""What happens around ``os.fork``: one set of hooks for the process, over weak references.

``os.register_at_fork`` cannot be undone, so a hook per object would keep every object alive
(opentelemetry-python 4422). In the child, locks are made anew and never taken: their owner may not exist there.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from nemo_lens.api._diagnostics import debug_once

# How long the parent waits, in total, for exports in flight.
WAIT_S = 0.1

_LOCK_TYPES: tuple[tuple[type, Callable[[], object]], ...] = tuple(
    (type(make()), make) for make in (threading.Lock, threading.RLock)
)


class ForkParticipant(Protocol):
    """An object that has something to do around a fork. No method may raise or block."""

    def before_fork(self, deadline: float) -> None:
        """Prepare in the parent, until ``deadline`` on the monotonic clock."""

    def after_fork_in_parent(self) -> None:
        """Undo what ``before_fork`` did."""

    def after_fork_in_child(self) -> None:
        """Make locks, queues and threads this process's own."""


# Replaced as a whole, so that a hook iterates over a tuple nobody changes.
_participants: tuple[weakref.ref[ForkParticipant], ...] = ()


def register(participant: ForkParticipant) -> None:
    """Call ``participant`` around each later fork, for as long as somebody else keeps it alive."""
    global _participants
    _participants = (*(ref for ref in _participants if ref() is not None), weakref.ref(participant))


def _each(step: str, *args: float) -> None:
    for ref in _participants:
        participant = ref()
        if participant is not None:
            try:
                getattr(participant, step)(*args)
            except Exception as fault:  # noqa: BLE001 - an exception in a fork hook would be printed and lost
                debug_once(("fork", step), "%s failed: %r", step, fault, exc_info=True)


def _before() -> None:
    _each("before_fork", time.monotonic() + WAIT_S)


def _after_in_parent() -> None:
    _each("after_fork_in_parent")


def _after_in_child() -> None:
    _each("after_fork_in_child")


def renew_locks(root: object) -> None:
    """Replace, in a child, the locks of an OpenTelemetry object and of all that it holds.

    A thread that is not here may hold them: OpenTelemetry 1.38 renews none of its providers' and meters', later
    versions some.
    """
    seen: set[int] = set()
    waiting: list[object] = [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif type(item).__module__.startswith("opentelemetry."):
            for name, value in list(getattr(item, "__dict__", {}).items()):
                make = next((make for kind, make in _LOCK_TYPES if type(value) is kind), None)
                if make is not None:
                    setattr(item, name, make())
                else:
                    waiting.append(value)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
