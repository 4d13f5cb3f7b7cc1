"""Spans of one OTLP JSON message.

Accepts enum names for enum values, as some writers spell them. What does not fit is a ``ValueError``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from nemo_lens.sdk.cli._otlp_values import attributes, identifier, integer, object_of, objects, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Enum names -> the numbers of the protocol.
_STATUS_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
STATUS_ERROR = 2


class Event(NamedTuple):
    """An event of a span."""

    name: str
    time_ns: int
    attributes: Mapping[str, object]


class Link(NamedTuple):
    """A link of a span to another span."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, object]


class Span(NamedTuple):
    """A finished span with the resource and the scope it came from. Times are epoch nanoseconds, 0 for unknown."""

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


def spans_of(resource_spans: object, skipped: Callable[[str], None]) -> Iterator[Span]:
    """Yield the spans of the ``resourceSpans`` of a message.

    Args:
        resource_spans: the decoded JSON.
        skipped: called with the reason for each span that is malformed, while the others are used.

    Raises:
        ValueError: what is around the spans is malformed.
    """
    for group in objects(resource_spans, "resourceSpans"):
        resource = attributes(object_of(group.get("resource"), "resource").get("attributes"))
        for scope_group in objects(group.get("scopeSpans"), "scopeSpans"):
            scope = text(object_of(scope_group.get("scope"), "scope").get("name"), "scope.name")
            for span in objects(scope_group.get("spans"), "spans"):
                try:
                    yield _span(span, resource, scope)
                except ValueError as error:  # the others of the line are good
                    skipped(f"span {str(span.get('name'))[:80]!r}: {error}")


def _span(raw: dict[str, Any], resource: Mapping[str, object], scope: str) -> Span:
    get = raw.get
    status = object_of(get("status"), "status")
    trace_id, span_id = identifier(get("traceId"), "traceId"), identifier(get("spanId"), "spanId")
    if not trace_id or not span_id:
        raise ValueError("traceId or spanId is missing")
    code = status.get("code", 0)
    events, links = get("events"), get("links")
    # By position, which is twice as fast: in the order of the class.
    return Span(
        trace_id,
        span_id,
        identifier(get("parentSpanId"), "parentSpanId"),
        text(get("name"), "name"),
        integer(get("startTimeUnixNano"), "startTimeUnixNano"),
        integer(get("endTimeUnixNano"), "endTimeUnixNano"),
        integer(_STATUS_CODES.get(str(code), code), "status.code") if code != 0 else 0,
        text(status.get("message"), "status.message"),
        attributes(get("attributes")),
        _events(events) if events is not None else (),
        _links(links) if links is not None else (),
        resource,
        scope,
    )


def _events(raw: object) -> tuple[Event, ...]:
    return tuple(
        Event(
            text(event.get("name"), "events.name"),
            integer(event.get("timeUnixNano"), "events.timeUnixNano"),
            attributes(event.get("attributes")),
        )
        for event in objects(raw, "events")
    )


def _links(raw: object) -> tuple[Link, ...]:
    return tuple(
        Link(
            identifier(link.get("traceId"), "links.traceId"),
            identifier(link.get("spanId"), "links.spanId"),
            attributes(link.get("attributes")),
        )
        for link in objects(raw, "links")
    )
