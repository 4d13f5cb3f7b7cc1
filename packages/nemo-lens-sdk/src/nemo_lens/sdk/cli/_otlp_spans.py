"""Spans of one OTLP JSON message.

Follows the JSON encoding of the OpenTelemetry Protocol 1.x (64-bit integers as strings, ids in hex), and accepts
numbers for the former and enum names for enum values. Anything else that does not fit is a ``ValueError``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Enum names, as some writers spell them -> the numbers of the protocol.
_STATUS_CODES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
STATUS_ERROR = 2


@dataclass(frozen=True)
class Event:
    """An event of a span."""

    name: str
    time_ns: int
    attributes: Mapping[str, object]


@dataclass(frozen=True)
class Link:
    """A link of a span to another span."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, object]


@dataclass(frozen=True)
class Span:
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
    for group in _objects(resource_spans, "resourceSpans"):
        resource = _attributes(_object(group.get("resource"), "resource").get("attributes"))
        for scope_group in _objects(group.get("scopeSpans"), "scopeSpans"):
            scope = _text(_object(scope_group.get("scope"), "scope").get("name"), "scope.name")
            for span in _objects(scope_group.get("spans"), "spans"):
                try:
                    yield _span(span, resource, scope)
                except ValueError as error:  # the others of the line are good
                    skipped(f"span {str(span.get('name'))[:80]!r}: {error}")


def _span(raw: dict[str, Any], resource: Mapping[str, object], scope: str) -> Span:
    status = _object(raw.get("status"), "status")
    code = status.get("code", 0)
    trace_id, span_id = _id(raw.get("traceId"), "traceId"), _id(raw.get("spanId"), "spanId")
    if not trace_id or not span_id:
        raise ValueError("traceId or spanId is missing")
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_id(raw.get("parentSpanId"), "parentSpanId"),
        name=_text(raw.get("name"), "name"),
        start_ns=_integer(raw.get("startTimeUnixNano"), "startTimeUnixNano"),
        end_ns=_integer(raw.get("endTimeUnixNano"), "endTimeUnixNano"),
        status_code=_integer(_STATUS_CODES.get(str(code), code), "status.code"),
        status_message=_text(status.get("message"), "status.message"),
        attributes=_attributes(raw.get("attributes")),
        events=tuple(
            Event(
                _text(event.get("name"), "events.name"),
                _integer(event.get("timeUnixNano"), "events.timeUnixNano"),
                _attributes(event.get("attributes")),
            )
            for event in _objects(raw.get("events"), "events")
        ),
        links=tuple(
            Link(
                _id(link.get("traceId"), "links.traceId"),
                _id(link.get("spanId"), "links.spanId"),
                _attributes(link.get("attributes")),
            )
            for link in _objects(raw.get("links"), "links")
        ),
        resource=resource,
        scope=scope,
    )


def _attributes(raw: object) -> dict[str, object]:
    return {
        _text(item.get("key"), "attributes.key"): _value(_object(item.get("value"), "attributes.value"))
        for item in _objects(raw, "attributes")
    }


def _value(raw: dict[str, Any]) -> object:
    if "intValue" in raw:
        return _integer(raw["intValue"], "intValue")
    if "doubleValue" in raw:  # NaN and the infinities are strings
        try:
            return float(raw["doubleValue"])
        except TypeError as error:
            raise ValueError(f"doubleValue is {raw['doubleValue']!r}") from error
    if "arrayValue" in raw:
        values = _objects(_object(raw["arrayValue"], "arrayValue").get("values"), "arrayValue.values")
        return tuple(_value(item) for item in values)
    if "kvlistValue" in raw:
        return _attributes(_object(raw["kvlistValue"], "kvlistValue").get("values"))
    return next(iter(raw.values()), None)  # stringValue, boolValue, bytesValue


def _objects(raw: object, what: str) -> list[dict[str, Any]]:
    if raw is None:
        return []
    if not isinstance(raw, list) or not all(isinstance(item, dict) for item in raw):
        raise ValueError(f"{what} is not a list of objects")
    return raw


def _object(raw: object, what: str) -> dict[str, Any]:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is not an object")
    return raw


def _text(raw: object, what: str) -> str:
    if raw is None:
        return ""
    if not isinstance(raw, str):
        raise ValueError(f"{what} is not a string")
    return raw


def _id(raw: object, what: str) -> str:
    # Kept as it is when it is not hex: ids are only compared, and base64 ones (protobuf's own JSON) compare as well.
    text = _text(raw, what)
    if not text.strip("0"):
        return ""
    return text.lower() if re.fullmatch(r"[0-9a-fA-F]{16}|[0-9a-fA-F]{32}", text) else text


def _integer(raw: object, what: str) -> int:
    if raw is None:
        return 0
    try:
        if isinstance(raw, (int, str)):
            return int(raw)
    except ValueError:
        pass
    raise ValueError(f"{what} is not an integer: {str(raw)[:40]!r}")
