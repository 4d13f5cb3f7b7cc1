"""Flushing actors before they are killed, since what Ray kills does not exit."""

from __future__ import annotations

import time
from typing import Any

from nemo_lens.api import get_telemetry
from nemo_lens.api._diagnostics import warn
from nemo_lens.contrib._requirement import require


def flush_actors(actors: Any, timeout_ms: int = 5000) -> bool:
    """Have actors export what they hold, as before ``ray.kill``, which ends them with nothing done.

    Each actor does it as a call of its own (``__ray_call__``), behind the calls that it has before it. Spans that are
    open then are not exported.

    Args:
        actors: an actor handle or an iterable of them.
        timeout_ms: milliseconds for all of them together.

    Returns:
        Whether every actor confirmed in time. One WARNING says how many did not; a dead actor is one of them.

    Raises:
        ImportError: when Ray is not installed.
    """
    ray = require("ray", "ray")
    handles = [actors] if isinstance(actors, ray.actor.ActorHandle) else list(actors)
    try:
        confirmed = _confirmed(ray, handles, timeout_ms)
    except Exception as fault:  # noqa: BLE001 - a cluster that is gone must not end the job
        _say(fault)
        confirmed = 0
    if confirmed < len(handles):
        warn("%d of %d actors did not confirm within %d ms", len(handles) - confirmed, len(handles), timeout_ms)
    return confirmed == len(handles)


def _confirmed(ray: Any, handles: list[Any], timeout_ms: int) -> int:
    if not handles:
        return 0
    deadline = time.monotonic() + timeout_ms / 1000
    answers = [handle.__ray_call__.remote(_flush, timeout_ms) for handle in handles]
    ready, _ = ray.wait(answers, num_returns=len(answers), timeout=max(0.0, deadline - time.monotonic()))
    confirmed = 0
    for answer in ready:
        try:
            confirmed += bool(ray.get(answer))
        except Exception as fault:  # noqa: BLE001 - a dead actor, or one without this package, is no reason to end the job
            _say(fault)
    return confirmed


def _flush(actor: object, timeout_ms: int) -> bool:
    return get_telemetry().force_flush(timeout_ms)


def _say(fault: Exception) -> None:
    lines = str(fault).strip().splitlines()
    warn("an actor could not be flushed: %s", lines[-1] if lines else type(fault).__name__)
