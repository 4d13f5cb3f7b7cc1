"""The last look at spans, log records and data points before they are sent, in the export thread.

What reached a span past the API's cleaning (``span.set_attribute``, other instrumentations) could spoil a whole batch:
a lone surrogate or a 70-bit integer cannot be encoded, a 5 MB string exceeds the message limit. Here such values
are mended, batches are cut to size, and the resource of this process and run is put in place, because the SDK gives
its providers theirs once and for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, Status

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.api._numbers import number
from nemo_lens.api._values import INT64_MAX, INT64_MIN
from nemo_lens.api.attributes import clean_attributes, clean_text, text_limit
from nemo_lens.sdk import _compat

# A gRPC receiver accepts 4 MiB by default; the estimate below counts characters, so it stays well under.
MAX_PART_CHARACTERS = 2 * 1024 * 1024
# What an attribute takes beside its text: tags, lengths, a number.
_OVERHEAD = 16
_LARGEST_FLOAT_BITS = 1023
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
            try:
                prepared, weight = self._prepare(item)
            except Exception as fault:  # noqa: BLE001 - one item must not take the others of its batch with it
                kind = (type(item).__name__, type(fault).__name__)
                warn_once(("prepare", *kind), "a %s could not be prepared for export and is lost: %s", *kind)
                continue
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
        record = item.log_record
        try:
            weight = _weigh_record(record)
        except _UnsendableError:
            # Copies: a host application's own exporters may be given the same record.
            item, record = copy(item), copy(record)
            record.attributes = _compat.log_attributes(_clean(record.attributes))
            record.body = _mended_value(record.body)
            object.__setattr__(item, "log_record", record)  # the item is frozen in later versions
            weight = _weigh_record(record)
        return _compat.log_with_resource(item, self.resource), weight


def mended_metrics(data: MetricsData, resource: Resource | None) -> MetricsData:
    """Return a collection whose points can all be sent: one that cannot would spoil each collection after it, too.

    Args:
        data: what the SDK collected.
        resource: resource to put on it; None to leave what is there.
    """
    return replace(
        data,
        resource_metrics=[
            replace(
                of_resource,
                resource=of_resource.resource if resource is None else resource,
                scope_metrics=[
                    replace(of_scope, metrics=[_mended_metric(metric) for metric in of_scope.metrics])
                    for of_scope in of_resource.scope_metrics
                ],
            )
            for of_resource in data.resource_metrics
        ],
    )


def _mended_metric(metric: Any) -> Any:
    description = clean_text(metric.description or "")
    points = []
    for point in metric.data.data_points:
        try:
            points.append(point if _is_sound(point) else _mended_point(point))
        except Exception as fault:  # noqa: BLE001 - one point must not take the others with it
            kind = type(fault).__name__
            warn_once(("point", metric.name, kind), "a value of metric %r cannot be sent: %s", metric.name, kind)
    return replace(metric, description=description, data=replace(metric.data, data_points=points))


# Of a number or an exemplar, and of a histogram.
_NUMBERS = ("value", "sum", "min", "max")


def _is_sound(point: Any) -> bool:
    """Return whether a data point, or an exemplar of one, can be sent."""
    try:
        for field in _NUMBERS:
            value = getattr(point, field, None)
            # Any other, be it a bool or one of numpy, some version's exporter refuses.
            if type(value) is not float and value is not None and type(value) is not int:
                return False
        _weigh_value(getattr(point, "value", None))
        _weigh(point.attributes if hasattr(point, "attributes") else point.filtered_attributes)
    except _UnsendableError:
        return False
    return all(_is_sound(exemplar) for exemplar in getattr(point, "exemplars", ()))


def _mended_point(point: Any) -> Any:
    changes: dict[str, Any] = {
        "attributes": _clean(point.attributes),
        "exemplars": [exemplar for exemplar in point.exemplars if _is_sound(exemplar)],
    }
    for field in _NUMBERS:
        value = getattr(point, field, None)
        if value is not None:
            changes[field] = _sendable(value)
    return replace(point, **changes)


def _sendable(value: Any) -> int | float:
    if type(value) is int and value.bit_length() > _LARGEST_FLOAT_BITS:
        return float("inf") if value > 0 else float("-inf")
    return number(value)  # beyond 64 bits OTLP has floats only


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
    flat = dict(attributes or {})
    # The SDK lets mappings through where the API's cleaning has none.
    nested = {clean_text(key): _mended_value(flat.pop(key)) for key in list(flat) if isinstance(flat[key], Mapping)}
    return {**clean_attributes(flat, _NO_REDACTION), **nested}


def _mended_value(value: Any) -> Any:
    """Return the body of a log record, or a part of one, as it can be sent."""
    if isinstance(value, Mapping):
        return {clean_text(key): _mended_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mended_value(part) for part in value]
    try:
        _weigh_value(value)
    except _UnsendableError:
        return clean_text(value)
    return value


class _UnsendableError(Exception):
    """A value that no exporter can encode, or that is too long."""


def _weigh_span(span: ReadableSpan) -> int:
    weight = _weigh_text(span.name) + _weigh(span.attributes)
    events, links = _compat.events_and_links(span)
    for event in events:
        weight += _weigh_text(event.name) + _weigh(event.attributes)
    for link in links:
        weight += _weigh(link.attributes)
    description = span.status.description
    return weight + _weigh_text(description) if description else weight


def _weigh_record(record: Any) -> int:
    return _weigh(record.attributes) + _weigh_value(record.body)


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
            if not INT64_MIN <= value <= INT64_MAX:
                raise _UnsendableError
        elif kind is not bool and kind is not float:
            total += _weigh_value(value)
        total += len(key) if key.isascii() else _weigh_text(key)
    return total


def _weigh_value(value: Any) -> int:
    if isinstance(value, str):
        return _weigh_text(value)
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
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


def _weigh_text(text: Any) -> int:
    # What no type checker saw may have named a span by something else.
    if not isinstance(text, str):
        raise _UnsendableError
    if len(text) > text_limit():
        raise _UnsendableError
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise _UnsendableError from None
