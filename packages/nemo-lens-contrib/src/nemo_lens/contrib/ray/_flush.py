"""Flushing actors before they are killed, since what Ray kills does not exit."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable
from typing import Any

from nemo_lens.api import get_telemetry
from nemo_lens.api._diagnostics import warn
from nemo_lens.contrib._requirement import require


def flush_actors(actors: Any, timeout_ms: float = 5000) -> bool:
    """Have actors export what they hold, as before ``ray.kill``, which ends them with nothing done.

    Each actor does it as a call of its own (``__ray_call__``), behind the calls that it has before it. Spans that are
    open then are not exported. Without a cluster, after ``ray.shutdown`` for example, none is started to ask.

    Args:
        actors: an actor handle or an iterable of them.
        timeout_ms: milliseconds for all of them together.

    Returns:
        Whether every actor confirmed in time. One WARNING says how many did not; a dead actor is one of them, and so is
        one that takes no more calls.

    Raises:
        ImportError: when Ray is not installed.
        TypeError: when ``actors`` is neither a handle nor iterable, or ``timeout_ms`` is no number.
        ValueError: when ``timeout_ms`` is negative or not finite.
    """
    ray: Any = require("ray", "ray")
    handles = _handles(ray, actors)
    _check_timeout(timeout_ms)
    if not handles:
        return True
    if not ray.is_initialized():
        warn("%d actors cannot be flushed: Ray is not initialized here, or has been shut down", len(handles))
        return False
    try:
        confirmed = _confirmed(ray, handles, timeout_ms)
    except Exception as fault:  # noqa: BLE001 - a cluster that is gone must not end the job
        _say(fault)
        confirmed = 0
    if confirmed < len(handles):
        warn("%d of %d actors did not confirm within %d ms", len(handles) - confirmed, len(handles), timeout_ms)
    return confirmed == len(handles)


def _handles(ray: Any, actors: Any) -> list[Any]:
    if isinstance(actors, (ray.actor.ActorHandle, *_client_handle_types())):
        return [actors]
    if isinstance(actors, str) or not isinstance(actors, Iterable):
        raise TypeError(f"flush_actors takes an actor handle or an iterable of them; got {actors!r}")
    return list(actors)


def _client_handle_types() -> tuple[type, ...]:
    # Loaded by whoever has such a handle: importing it takes gRPC, which a plain installation of Ray may lack.
    common: Any = sys.modules.get("ray.util.client.common")
    return () if common is None else (common.ClientActorHandle,)


def _check_timeout(timeout_ms: Any) -> None:
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, (int, float)):
        raise TypeError(f"timeout_ms={timeout_ms!r}: expected a number of milliseconds")
    if not 0 <= timeout_ms < math.inf:
        raise ValueError(f"timeout_ms={timeout_ms!r}: expected 0 or more milliseconds")


def _confirmed(ray: Any, handles: list[Any], timeout_ms: float) -> int:
    deadline = time.monotonic() + timeout_ms / 1000
    answers = []
    for handle in handles:
        try:
            answers.append(_ask(ray, handle, timeout_ms))
        except Exception as fault:  # noqa: BLE001 - it takes no more calls, or is no actor: the others are asked still
            _say(fault)
    if not answers:
        return 0
    ready, _ = ray.wait(answers, num_returns=len(answers), timeout=max(0.0, deadline - time.monotonic()))
    confirmed = 0
    for answer in ready:
        try:
            confirmed += bool(ray.get(answer))
        except Exception as fault:  # noqa: BLE001 - a dead actor, or one without this package, is no reason to end the job
            _say(fault)
    return confirmed


def _ask(ray: Any, handle: Any, timeout_ms: float) -> Any:
    if isinstance(handle, _client_handle_types()):
        # Ray Client's handle has the methods of the user's class only; in a task it is a handle like any other.
        return ray.remote(num_cpus=0)(_ask_from_there).remote(handle, timeout_ms)
    return handle.__ray_call__.remote(_flush, timeout_ms)


def _ask_from_there(handle: Any, timeout_ms: float) -> bool:
    ray: Any = require("ray", "ray")
    return bool(ray.get(_ask(ray, handle, timeout_ms)))


def _flush(actor: object, timeout_ms: float) -> bool:
    return get_telemetry().force_flush(int(timeout_ms))


def _say(fault: Exception) -> None:
    lines = str(fault).strip().splitlines()
    warn("an actor could not be flushed: %s", lines[-1] if lines else type(fault).__name__)
