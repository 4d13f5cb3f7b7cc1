"""Spans made in one call: ``emit_span`` with given times, ``mark`` for a moment."""

from __future__ import annotations

import time
from decimal import Context, Decimal

from nemo_lens.api import backend as _cell
from nemo_lens.api import state as _state
from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.api.attributes import clean_attributes, clean_text
from nemo_lens.api.fallbacks import NULL_SPAN
from nemo_lens.api.scopes import current_scope
from nemo_lens.api.semconv import (
    INVERTED_DELTA_SECONDS,
    INVERTED_END_EPOCH_SECONDS,
    INVERTED_SKEW,
    INVERTED_START_EPOCH_SECONDS,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Seconds = float | int | str | Decimal

# OTLP sends times as unsigned 64-bit nanoseconds.
_MAX_SECONDS = Decimal(2**64 - 1).scaleb(-9, Context(prec=50))
# Ours, so that no precision or trap of the application's decimal context has a say; what is out of all bounds becomes
# infinity or zero.
_EXACT = Context(prec=50, Emin=-50, Emax=50, traps=[])


def emit_span(
    tracer: Any,
    name: str,
    start_s: Seconds,
    end_s: Seconds,
    *,
    group: str | None = None,
    context: Any = None,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Emit a finished span that was measured elsewhere.

    An end before the start (two clocks) is moved to the start and evidenced by ``inverted.*`` attributes and one
    WARNING per name. Times that are no finite number, negative or beyond 64 bits of nanoseconds emit nothing, with one
    WARNING per name. While telemetry is off, nothing is looked at.

    Args:
        tracer: tracer to use; None for the default one of scope ``nemo.lens.helpers``.
        name: span name.
        start_s: start in seconds since the epoch; a string or Decimal keeps nanoseconds, a float some 200 ns.
        end_s: end, likewise.
        group: span group that switches it on; None for always.
        context: what ``extract_context`` returned, or a carrier: the parent. Default the current context.
        attributes: span attributes.

    Returns:
        The ended span, which may be the parent of others, or None when nothing was emitted.

    Raises:
        TypeError: when ``group`` cannot be hashed, such as a list.
    """
    if (group is not None and group not in _state.enabled) or _cell.current is _cell.NOOP_BACKEND:
        return None
    name = clean_text(name)
    try:
        start, end = epoch_seconds(start_s), epoch_seconds(end_s)
    except Exception as fault:  # noqa: BLE001 - a subclass of str or Decimal may do anything
        warn_once(("emit_span", name), "span %r is not emitted: %s", name, fault)
        return None
    attrs = clean_attributes(attributes)
    if end < start:
        delta = _EXACT.subtract(end, start)
        warn_once(
            ("emit_span inverted", name),
            "span %r ends %s s before it starts; emitted with its end moved to its start",
            name,
            format(-delta, "f"),
        )
        attrs[INVERTED_SKEW] = True
        attrs[INVERTED_START_EPOCH_SECONDS] = format(start, "f")
        attrs[INVERTED_END_EPOCH_SECONDS] = format(end, "f")
        attrs[INVERTED_DELTA_SECONDS] = format(delta, "f")
        end = start
    return _emit(tracer, name, _nanoseconds(start), _nanoseconds(end), attrs, context)


def mark(name: str, *, group: str | None = None, attributes: Mapping[str, Any] | None = None) -> None:
    """Emit a span of zero length now, under the current one.

    Args:
        name: span name.
        group: span group that switches it on; None for always.
        attributes: span attributes.

    Raises:
        TypeError: when ``group`` cannot be hashed, such as a list.
    """
    if group is not None and group not in _state.enabled:
        return
    now = time.time_ns()
    _emit(None, clean_text(name), now, now, clean_attributes(attributes), None)


def epoch_seconds(value: Seconds) -> Decimal:
    """Return a time in seconds since the epoch, to the nanosecond.

    Raises:
        ValueError: when ``value`` is no finite number of seconds between the epoch and 64 bits of nanoseconds.
    """
    wanted = "a time must be seconds since the epoch, such as 1750000000.25"
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise ValueError(f"{wanted}; got {type(value).__name__}")
    seconds = _EXACT.create_decimal(value.strip() if isinstance(value, str) else value)
    if not seconds.is_finite() or not 0 <= seconds <= _MAX_SECONDS:
        raise ValueError(f"{wanted}, finite and not negative; got {value!r:.80}")
    return seconds


def _nanoseconds(seconds: Decimal) -> int:
    return int(_EXACT.scaleb(seconds, 9))


def _emit(tracer: Any, name: str, start_ns: int, end_ns: int, attrs: dict[str, Any], context: Any) -> Any:
    backend = _cell.current
    scoped = current_scope.get()
    try:
        span = backend.start_span(
            name,
            {**scoped, **attrs} if scoped else attrs,
            tracer=tracer,
            context=context,
            start_time_ns=start_ns,
        )
        if span is NULL_SPAN:
            return None
        span.end(end_ns)
    except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not reach the caller
        debug_once(("emit", type(fault)), "could not emit span %r: %r", name, fault, exc_info=True)
        return None
    return span
