"""Trace context in and out of carriers, and into threads."""

from __future__ import annotations

import functools
import os
from contextvars import copy_context

from nemo_lens.api import backend as _cell
from nemo_lens.api._diagnostics import debug_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import Any, ParamSpec, TypeVar

    _P = ParamSpec("_P")
    _R = TypeVar("_R")

# A carrier read from outside is bounded: what its propagation fields hold beyond this is an empty context.
MAX_CARRIER_BYTES = 8 * 1024


def inject_context(carrier: MutableMapping[str, str] | None = None, context: Any = None) -> MutableMapping[str, str]:
    """Write the current trace context into a carrier.

    Args:
        carrier: mapping to write to; default a new dict. ``os.environ``, and a copy of it with a ``PATH``, gets
            upper-case names (``TRACEPARENT``), which a later ``setup_telemetry`` in a child process takes as the parent
            of its root spans. A name that the carrier already holds, in whatever case, is overwritten as it is spelled
            there.
        context: what ``extract_context`` returned; default the current context.

    Returns:
        The carrier, unchanged when there is no span or telemetry is off.
    """
    target: MutableMapping[str, str] = {} if carrier is None else carrier
    fields: dict[str, str] = {}
    try:
        _cell.current.inject(fields, context)
    except Exception as fault:  # noqa: BLE001 - baggage that cannot be encoded must not cost the trace before it
        debug_once(("inject fields", type(fault)), "a propagator could not write: %r", fault, exc_info=True)
    try:
        readable = hasattr(type(target), "__iter__")
        upper = target is os.environ or (readable and "PATH" in target)
        # In a copy of the environment, say, an outer launcher's TRACEPARENT must not stay beside a new traceparent.
        held = _spellings(target, fields) if fields and readable else {}
        for key, value in fields.items():
            for name in held.get(key.lower()) or (key.upper() if upper else key,):
                target[name] = value
        if "traceparent" in fields and "tracestate" not in fields:
            for name in held.get("tracestate", ()):
                del target[name]  # it belongs to the traceparent that was there
    except Exception as fault:  # noqa: BLE001 - a bad carrier must not reach the caller
        debug_once(("inject", type(fault)), "could not write the trace context: %r", fault, exc_info=True)
    return target


def extract_context(carrier: Any) -> Any:
    """Read a trace context from a carrier, for the ``context`` of a span.

    Args:
        carrier: mapping of names to strings in any case, such as what ``inject_context`` filled, HTTP headers or
            ``os.environ``.

    Returns:
        The context; an empty one for a carrier that is malformed, of another type or larger than 8 KiB.
    """
    return read_carrier(_cell.current, carrier)


def read_carrier(backend: Any, carrier: Any) -> Any:
    """Read the propagation fields of ``carrier``, bounded, with the propagators of ``backend``."""
    fields: dict[str, str] = {}
    try:
        wanted = backend.propagation_fields()
        size = 0
        for key, value in carrier.items():
            if isinstance(key, str) and key.lower() in wanted:
                text = value if isinstance(value, str) else value[0] if isinstance(value, (list, tuple)) else None
                if not isinstance(text, str):
                    continue
                size += len(key) + len(text.encode("utf-8", "surrogatepass"))
                fields[key.lower()] = text
        if size > MAX_CARRIER_BYTES:
            debug_once("carrier size", "a carrier of %d bytes is ignored: more than %d", size, MAX_CARRIER_BYTES)
            fields = {}
        return backend.extract(fields)
    except Exception as fault:  # noqa: BLE001 - whatever came from outside must not reach the caller
        debug_once(("extract", type(fault)), "could not read a trace context: %r", fault, exc_info=True)
        return _empty(backend)


def bind_context(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Bind a function to the context of now, for threads and executors, which start with an empty one.

    Args:
        fn: function to run elsewhere, several times and at once if need be.

    Returns:
        A function that runs ``fn`` in a copy of the present context.
    """
    captured = copy_context()

    @functools.wraps(fn)
    def bound(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return captured.copy().run(fn, *args, **kwargs)

    return bound


def _spellings(carrier: MutableMapping[str, str], fields: dict[str, str]) -> dict[str, list[str]]:
    wanted = {"tracestate", *map(str.lower, fields)}
    held: dict[str, list[str]] = {}
    for name in carrier:
        if isinstance(name, str) and name.lower() in wanted:
            held.setdefault(name.lower(), []).append(name)
    return held


def _empty(backend: Any) -> Any:
    try:
        return backend.extract({})
    except Exception as fault:  # noqa: BLE001 - a broken propagator must not reach the caller
        debug_once(("extract empty", type(fault)), "a propagator fails on an empty carrier: %r", fault, exc_info=True)
        return None
