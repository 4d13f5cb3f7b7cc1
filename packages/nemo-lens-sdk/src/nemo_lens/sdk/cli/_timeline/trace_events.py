"""Events of the Trace Event format, as text: what Perfetto, chrome://tracing and Holistic Trace Analysis read.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are microseconds after a base
that the file states as ``baseTimeNanoseconds``, as in traces of the PyTorch profiler.
"""

from __future__ import annotations

import functools
import json
import math

from nemo_lens.api.semconv import NEMO_SPAN_TRUNCATED
from nemo_lens.sdk.cli._otlp_spans import STATUS_ERROR, Span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nemo_lens.sdk.cli._otlp_spans import Event, Link

_STATUS_OK = 1
# The picture is for looking: what is longer stays in the files.
_MAX_TEXT = 16 * 1024
_SHORT = 256
_MAX_ITEMS = 256
_MAX_DEPTH = 16
_INT64 = range(-(1 << 63), 1 << 63)
# 26 days: up to here a double that counts microseconds tells nanoseconds apart, rounding included.
_EXACT_NS = 1 << 51

# Arguments that are not attributes. The picture adds the resource, to some spans.
_OWN_ARGUMENTS = frozenset({"trace_id", "span_id", "parent_id", "status", "end", "links", "events", "resource"})

# Shown with the event itself, where there is room for it.
_LONG_ATTRIBUTES = frozenset({"exception.stacktrace"})

# As OTLP spells them; JSON has none.
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Clock:
    """Turns epoch nanoseconds into the text of a trace's microseconds.

    Args:
        base_ns: what the trace counts from.
        last_ns: the latest time of the trace. When a double cannot hold all nanoseconds between the two, whole
            microseconds are written, so that no span sticks out of its parent.
    """

    def __init__(self, base_ns: int, last_ns: int) -> None:
        self.base_ns = base_ns
        self._exact = last_ns - base_ns < _EXACT_NS

    def at(self, time_ns: int) -> str:
        """Return a point in time."""
        return self._text(time_ns - self.base_ns)

    def between(self, start_ns: int, end_ns: int) -> str:
        """Return a duration that ends where ``at(end_ns)`` is."""
        if self._exact:
            return self._text(end_ns - start_ns)
        return str((end_ns - self.base_ns) // 1000 - (start_ns - self.base_ns) // 1000)

    def _text(self, nanoseconds: int) -> str:
        whole, rest = divmod(nanoseconds, 1000)
        if not rest or not self._exact:
            return str(whole)
        text = f"{whole}.{rest:03}"
        # Perfetto multiplies by 1000 and cuts the fraction off: one nanosecond too early, a span would begin before its
        # parent, and be dropped.
        value = float(text)
        return text if int(value * 1000) == nanoseconds else repr(math.nextafter(value, math.inf))


def to_json(value: object) -> str:
    """Return JSON for a value made of strings, numbers, lists and mappings, cut where it is too long for a picture."""
    if type(value) is str and len(value) < _SHORT:
        return _short_to_json(value)
    return _ENCODER.encode(value if _fits(value) else _fitting(value, _MAX_DEPTH))


@functools.lru_cache(maxsize=1024)  # names come again and again
def _short_to_json(text: str) -> str:
    return _ENCODER.encode(text)


def _fits(value: object) -> bool:
    """Return whether ``_fitting`` has nothing to do: nearly always, as arguments are a few short texts and numbers."""
    if type(value) is not dict or len(value) > _MAX_ITEMS:
        return False
    for key, item in value.items():
        kind = type(item)
        if kind is str:
            if len(item) > _MAX_TEXT:
                return False
        elif kind is not bool and (kind is not int or item not in _INT64):
            return False
        if type(key) is not str or len(key) > _MAX_TEXT:
            return False
    return True


def _fitting(value: object, depth: int) -> object:
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}... ({len(value)} characters)"
    if value is None:
        return "null"  # viewers leave a real one out
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value in _INT64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if depth == 0:
        return "..."
    if isinstance(value, dict):
        pairs = list(value.items())
        kept = {_fitting(key, 0): _fitting(item, depth - 1) for key, item in pairs[:_MAX_ITEMS]}
        return {**kept, "...": f"{len(pairs)} in all"} if len(pairs) > _MAX_ITEMS else kept
    if isinstance(value, (list, tuple)):
        items = [_fitting(item, depth - 1) for item in value[:_MAX_ITEMS]]
        return [*items, f"... ({len(value)} in all)"] if len(value) > _MAX_ITEMS else items
    return str(value)


def span_body(span: Span) -> bytes:
    """Return the part of a span's event that says what it is: name, category, colour and, last and open, ``args``."""
    name, colour = span.name or "(no name)", ""
    if span.attributes.get(NEMO_SPAN_TRUNCATED):
        name, colour = f"{name} (truncated)", "bad"
    elif not span.end_ns:
        name, colour = f"{name} (no end)", "bad"
    if span.status_code == STATUS_ERROR:
        # In the name, too: Perfetto knows no colours of events.
        name, colour = f"{name} (error)", "terrible"
    painted = f',"cname":"{colour}"' if colour else ""
    arguments = to_json(_arguments(span))[:-1]  # the brace stays open for what is known later
    return encoded(f'"name":{to_json(name)},"cat":{to_json(span.scope or "span")}{painted},"args":{arguments}')


def _arguments(span: Span) -> dict[str, object]:
    about: dict[str, object] = {"trace_id": span.trace_id, "span_id": span.span_id}
    if span.parent_id:
        about["parent_id"] = span.parent_id
    if span.status_code == STATUS_ERROR:
        about["status"] = f"ERROR {span.status_message}".rstrip()
    elif span.status_code == _STATUS_OK:
        about["status"] = "OK"
    if 0 < span.end_ns < span.start_ns:
        about["end"] = f"{span.start_ns - span.end_ns} ns before the start"
    if span.links:
        about["links"] = [_link(link) for link in span.links]
    if span.events:
        about["events"] = [_event(event, span.start_ns) for event in span.events]
    own = {f"attribute.{key}" if key in _OWN_ARGUMENTS else key: value for key, value in span.attributes.items()}
    return {**own, **about}


def _link(link: Link) -> dict[str, object]:
    return {"trace_id": link.trace_id, "span_id": link.span_id, **link.attributes}


def _event(event: Event, start_ns: int) -> dict[str, object]:
    short = {key: value for key, value in event.attributes.items() if key not in _LONG_ATTRIBUTES}
    return {"name": event.name, "offset_ns": event.time_ns - start_ns, **short}


def span_events(span: Span, end_ns: int) -> bytes:
    """Return the span's own events as JSON ``[[time, body], ...]``, inside its bounds; empty for none."""
    if not span.events:
        return b""
    made: list[tuple[int, str]] = []
    for event in span.events:
        time_ns = min(max(event.time_ns, span.start_ns), end_ns)
        arguments = {**event.attributes, "span": span.name, "span_id": span.span_id}
        if time_ns != event.time_ns:
            arguments["recorded_at_ns"] = str(event.time_ns)
        made.append((time_ns, f'"name":{to_json(event.name or "(no name)")},"cat":"event","args":{to_json(arguments)}'))
    return encoded(json.dumps(made))


def resource_text(resource: Mapping[str, object]) -> str:
    """Return the resource as an argument that follows others."""
    return f',"resource":{to_json(dict(resource))}'


def metadata(name: str, pid: int, tid: int, argument: str, value: object) -> str:
    """Return a metadata event, of a process where ``tid`` is 0."""
    thread = f',"tid":{tid}' if tid else ""
    return f'{{"ph":"M","name":"{name}","pid":{pid}{thread},"args":{{"{argument}":{to_json(value)}}}}}'


def encoded(text: str) -> bytes:
    """Return UTF-8; lone surrogates, which JSON can spell and UTF-8 cannot, are replaced."""
    return text.encode("utf-8", "replace")
