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
# What an attribute takes beside its text: tags, lengths, a number.
_OVERHEAD = 16
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
        resource = self.resource if self.resource is not None else item.resource
        try:
            weight = _weigh_span(item)
        except _UnsendableError:
            mended = _mended(item, resource)
            return mended, _weigh_span(mended)
        return (item if item.resource is resource else _copy(item, resource)), weight


class OutgoingLogs(Outgoing):
    """Prepares log records."""

    def _prepare(self, item: Any) -> tuple[Any, int]:
        record = _compat.log_record(item)
        try:
            weight = _weigh_record(record)
        except _UnsendableError:
            record.attributes = _clean(record.attributes)
            if isinstance(record.body, str):
                record.body = clean_text(record.body)
            weight = _weigh_record(record)
        return _compat.log_with_resource(item, self.resource), weight


def _mended(span: ReadableSpan, resource: Resource) -> ReadableSpan:
    status = span.status
    return _copy(
        span,
        resource,
        name=clean_text(span.name),
        attributes=_clean(span.attributes),
        events=[Event(clean_text(event.name), _clean(event.attributes), event.timestamp) for event in span.events],
        links=[Link(link.context, _clean(link.attributes)) for link in span.links],
        status=Status(status.status_code, clean_text(status.description)) if status.description else status,
    )


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


class _UnsendableError(Exception):
    """A value that no exporter can encode, or that is too long."""


def _weigh_span(span: ReadableSpan) -> int:
    weight = _weigh_text(span.name) + _weigh(span.attributes)
    for event in span.events:
        weight += _weigh_text(event.name) + _weigh(event.attributes)
    for link in span.links:
        weight += _weigh(link.attributes)
    description = span.status.description
    return weight + _weigh_text(description) if description else weight


def _weigh_record(record: Any) -> int:
    return _weigh(record.attributes) + (_weigh_text(record.body) if isinstance(record.body, str) else 0)


def _weigh(attributes: Mapping[str, Any] | None) -> int:
    """Return about how many characters the attributes take in a message."""
    if not attributes:
        return 0
    longest = text_limit()
    # The SDK's mapping is slow to iterate, one call a key; its copy is a plain dict.
    plain = attributes.copy() if hasattr(attributes, "copy") else attributes
    total = _OVERHEAD * len(plain)
    for key, value in plain.items():
        kind = type(value)
        if kind is str:
            length = len(value)
            total += length if length <= longest and value.isascii() else _weigh_text(value)
        elif kind is int:
            if not _MIN_INT64 <= value <= _MAX_INT64:
                raise _UnsendableError
        elif kind is not bool and kind is not float:
            total += _weigh_value(value)
        total += len(key) if key.isascii() else _weigh_text(key)
    return total


def _weigh_value(value: Any) -> int:
    if isinstance(value, str):
        return _weigh_text(value)
    if isinstance(value, int):
        if not _MIN_INT64 <= value <= _MAX_INT64:
            raise _UnsendableError
        return 0
    if isinstance(value, (tuple, list)):
        return sum(_OVERHEAD + _weigh_value(part) for part in value)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Mapping):
        return _weigh(value)
    if value is None or isinstance(value, float):
        return 0
    raise _UnsendableError


def _weigh_text(text: str) -> int:
    if len(text) > text_limit():
        raise _UnsendableError
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise _UnsendableError from None
