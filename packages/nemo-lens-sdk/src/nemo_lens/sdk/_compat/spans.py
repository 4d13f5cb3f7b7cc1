"""What the supported OpenTelemetry versions have no public way to do with spans, contexts and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, attach, set_value
from opentelemetry.sdk.trace import Event, ReadableSpan, Span
from opentelemetry.trace import Link


def succeeded(result: Any) -> bool:
    """Return whether an exporter of any signal confirmed what it was given."""
    return getattr(result, "name", "") == "SUCCESS"


def suppress_instrumentation() -> None:
    """Keep instrumented HTTP and gRPC clients from tracing the exports of the calling thread."""
    # The key has no public name; opentelemetry-instrumentation, which has one, is no dependency.
    attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))


def is_suppressed(context: Context) -> bool:
    """Return whether what happens in this context is part of an export, of ours or of an SDK's processor."""
    return bool(context.get(_SUPPRESS_INSTRUMENTATION_KEY))


def events_and_links(span: ReadableSpan) -> tuple[Sequence[Event], Sequence[Link]]:
    """Return a finished span's events and links.

    The public properties copy both lists under a lock, also when they are empty, as they mostly are: that is a
    hundredth of the time of a whole span.
    """
    try:
        if not span._events and not span._links:
            return (), ()
    except AttributeError:
        pass  # an SDK that keeps them elsewhere
    return span.events, span.links


def bounded(span: ReadableSpan) -> dict[str, Any]:
    """Return a finished span's attributes, events and links for a copy of it, as what knows how many were dropped.

    The public properties give views without that.
    """
    return {name: getattr(span, f"_{name}", getattr(span, name)) for name in ("attributes", "events", "links")}


def add_attributes(span: Span, added: Mapping[str, Any]) -> None:
    """Set attributes that a span does not have yet, and keep what it has.

    At the limit of attributes the SDK drops the oldest for each new one. Here the last of ``added`` are left out and
    count as dropped.
    """
    own: Any = getattr(span, "_attributes", None)
    most = getattr(own, "maxlen", None)
    if most is not None and len(own) + len(added) > most:
        fitting = dict(islice(added.items(), max(0, most - len(own))))
        # Most that do not fit now did not fit at the start, either, where the helpers gave them.
        own.dropped = max(own.dropped, len(added) - len(fitting))
        added = fitting
    span.set_attributes(added)
