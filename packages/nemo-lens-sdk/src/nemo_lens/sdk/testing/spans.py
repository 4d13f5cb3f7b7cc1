"""Finished spans as a test reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nemo_lens.sdk.cli._otlp_spans import Event, Link, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.sdk.trace import ReadableSpan


@dataclass(frozen=True, eq=False, repr=False)
class RecordedSpan:
    """A finished span.

    ``name``, ``attributes``, ``trace_id`` and ``span_id`` (hex), ``events`` (``name``, ``time_ns``, ``attributes``),
    ``links`` (``trace_id``, ``span_id``, ``attributes``), ``start_ns``, ``end_ns`` (epoch), ``resource``, ``scope``
    (name of the instrumentation scope), ``status_message``; ``kind`` is ``internal``, ``server``, ``client``,
    ``producer`` or ``consumer``.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    status_code: int
    status_message: str
    attributes: Mapping[str, object]
    events: tuple[Event, ...]
    links: tuple[Link, ...]
    resource: Mapping[str, object]
    scope: str
    kind: str
    _family: dict[tuple[str, str], RecordedSpan]

    @property
    def status(self) -> str:
        """``UNSET``, ``OK`` or ``ERROR``."""
        return _STATUSES[self.status_code]

    @property
    def duration_s(self) -> float:
        """From start to end, in seconds."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def parent(self) -> RecordedSpan | None:
        """The parent; None for a root, and where the parent has not ended or is not of this process.

        ``parent_id`` is empty for a root.
        """
        return self._family.get((self.trace_id, self.parent_id))

    @property
    def children(self) -> list[RecordedSpan]:
        """The spans whose parent this is, in the order they started."""
        return [span for span in self._family.values() if span.parent is self]

    def __repr__(self) -> str:
        error = f" ERROR {self.status_message!r}" if self.status == "ERROR" else ""
        return f"<RecordedSpan {self.name!r}{error} {dict(self.attributes)!r}>"


_STATUSES = ("UNSET", "OK", "ERROR")


def as_read(span: RecordedSpan) -> Span:
    """Return the span as the command line reads it from a file."""
    return Span(*(getattr(span, name) for name in Span._fields))


def recorded_spans(finished: Iterable[ReadableSpan]) -> list[RecordedSpan]:
    """Return the spans in the order they started."""
    family: dict[tuple[str, str], RecordedSpan] = {}
    spans = [_recorded(span, family) for span in sorted(finished, key=lambda span: span.start_time or 0)]
    for span in spans:
        family[span.trace_id, span.span_id] = span
    return spans


def _recorded(span: ReadableSpan, family: dict[tuple[str, str], RecordedSpan]) -> RecordedSpan:
    return RecordedSpan(
        trace_id=_trace_id(span.context),
        span_id=_span_id(span.context),
        parent_id=_span_id(span.parent) if span.parent is not None else "",
        name=span.name,
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        status_code=span.status.status_code.value,
        status_message=span.status.description or "",
        attributes=_plain(span.attributes),
        events=tuple(Event(event.name, event.timestamp, _plain(event.attributes)) for event in span.events),
        links=tuple(
            Link(_trace_id(link.context), _span_id(link.context), _plain(link.attributes)) for link in span.links
        ),
        resource=_plain(span.resource.attributes),
        scope=span.instrumentation_scope.name if span.instrumentation_scope else "",
        kind=span.kind.name.lower(),
        _family=family,
    )


def _plain(attributes: Mapping[str, object] | None) -> dict[str, object]:
    return dict(attributes or {})


def _trace_id(context: object) -> str:
    return f"{getattr(context, 'trace_id', 0):032x}"


def _span_id(context: object) -> str:
    return f"{getattr(context, 'span_id', 0):016x}"
