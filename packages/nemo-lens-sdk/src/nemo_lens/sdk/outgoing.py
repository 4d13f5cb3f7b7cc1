"""The last look at spans and log records before they are sent, in the export thread.

What reached a span past the API's cleaning (``span.set_attribute``, other instrumentations) could spoil a whole batch:
a lone surrogate or a 70-bit integer cannot be encoded, a 5 MB string exceeds the message limit. Here such values
are mended, batches are cut to size, and the resource of this process and run is put in place, because the SDK gives
its providers theirs once and for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, Status

from nemo_lens.api.attributes import clean_attributes, clean_text, text_limit
from nemo_lens.sdk import _compat

# A gRPC receiver accepts 4 MiB by default; the estimate below counts characters, so it stays well under.
MAX_PART_CHARACTERS = 2 * 1024 * 1024
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
# Attributes of ours must not be redacted twice: what was redacted is text already, and what was not was the user's
# own span.set_attribute.
_NO_REDACTION: tuple[str, ...] = ()


class Outgoing:
    """Prepares items for one run of one process.

    Args:
        resource: resource to put on every item; None to leave the host application's.
    """

    def __init__(self, resource: Resource | None) -> None:
        self.resource = resource

    def parts(self, batch: Sequence[Any]) -> Iterator[list[Any]]:
        """Yield the prepared items of a batch in parts that fit into one message."""
        part: list[Any] = []
        size = 0
        for item in batch:
            prepared, weight = self._prepare(item)
            if part and size + weight > MAX_PART_CHARACTERS:
                yield part
                part, size = [], 0
            part.append(prepared)
            size += weight
        if part:
            yield part

    def _prepare(self, item: Any) -> tuple[Any, int]:
        raise NotImplementedError


class OutgoingSpans(Outgoing):
    """Prepares finished spans."""

    def _prepare(self, item: ReadableSpan) -> tuple[ReadableSpan, int]:
        weight = _sum(_weigh_text(item.name), _weigh(item.attributes))
        for event in item.events:
            weight = _sum(weight, _weigh_text(event.name), _weigh(event.attributes))
        for link in item.links:
            weight = _sum(weight, _weigh(link.attributes))
        status = item.status
        if status.description:
            weight = _sum(weight, _weigh_text(status.description))
        resource = self.resource if self.resource is not None else item.resource
        if weight >= 0:
            return (item if item.resource is resource else _copy(item, resource)), weight
        return self._mended(item, resource), text_limit()

    def _mended(self, span: ReadableSpan, resource: Resource) -> ReadableSpan:
        return _copy(
            span,
            resource,
            name=clean_text(span.name),
            attributes=_clean(span.attributes),
            events=[Event(clean_text(event.name), _clean(event.attributes), event.timestamp) for event in span.events],
            links=[Link(link.context, _clean(link.attributes)) for link in span.links],
            status=Status(span.status.status_code, clean_text(span.status.description))
            if span.status.description
            else span.status,
        )


class OutgoingLogs(Outgoing):
    """Prepares log records."""

    def _prepare(self, item: Any) -> tuple[Any, int]:
        record = _compat.log_record(item)
        weight = _weigh(record.attributes)
        body = record.body
        if isinstance(body, str):
            weight = _sum(weight, _weigh_text(body))
        if weight < 0:
            record.attributes = _clean(record.attributes)
            record.body = clean_text(body) if isinstance(body, str) else body
            weight = text_limit()
        return _compat.log_with_resource(item, self.resource), weight


def _copy(span: ReadableSpan, resource: Resource, **changes: Any) -> ReadableSpan:
    fields: dict[str, Any] = {
        "name": span.name,
        "context": span.context,
        "parent": span.parent,
        "resource": resource,
        "attributes": span.attributes,
        "events": span.events,
        "links": span.links,
        "kind": span.kind,
        "status": span.status,
        "start_time": span.start_time,
        "end_time": span.end_time,
        "instrumentation_scope": span.instrumentation_scope,
    }
    return ReadableSpan(**{**fields, **changes})


def _clean(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return clean_attributes(dict(attributes or {}), _NO_REDACTION)


def _sum(*weights: int) -> int:
    """Add weights; one that is negative, for something to mend, makes the sum negative."""
    return -1 if min(weights) < 0 else sum(weights)


def _weigh(attributes: Mapping[str, Any] | None) -> int:
    """Return the characters in the attributes, -1 when one cannot be sent as it is."""
    if not attributes:
        return 0
    total = 0
    for key, value in attributes.items():
        kind = type(value)
        weight = _weigh_text(value) if kind is str else 8 if kind is bool or kind is float else _weigh_value(value)
        if weight < 0 or (not key.isascii() and _weigh_text(key) < 0):
            return -1
        total += weight + len(key)
    return total


def _weigh_value(value: Any) -> int:
    if isinstance(value, int):
        return 8 if _MIN_INT64 <= value <= _MAX_INT64 else -1
    if isinstance(value, (str, float)):
        return _weigh_text(value) if isinstance(value, str) else 8
    if isinstance(value, (tuple, list)):
        return _sum(0, *(_weigh_value(part) for part in value))
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Mapping):
        return _weigh(value)
    return 0 if value is None else -1


def _weigh_text(text: str) -> int:
    if len(text) > text_limit():
        return -1
    if not text.isascii():
        try:
            return len(text.encode())
        except UnicodeEncodeError:
            return -1
    return len(text)
