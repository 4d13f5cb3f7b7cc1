"""The last look at spans and log records before they are sent, in the export thread.

What reached a span past the API's cleaning (``span.set_attribute``, other instrumentations) could spoil a whole batch.
Here such values are mended, batches are cut to size, and the resource of this process and run is put in place, because
the SDK gives its providers theirs once and for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, Status

from nemo_lens.api.attributes import clean_text
from nemo_lens.sdk import _compat
from nemo_lens.sdk.sendable import (
    UnsendableError,
    check_time,
    clean_mapping,
    in_parts,
    mended_value,
    sound_name,
    sound_scope,
    sound_time,
    weigh,
    weigh_name,
    weigh_text,
    weigh_value,
)

# What they take beside their texts and attributes: ids, times, flags, and of a span a short trace state.
_SPAN = 256
_RECORD = 128
_EVENT = 32
_LINK = 64
# Scopes to remember: a job has few, unless it makes a tracer for each span.
_MOST_SCOPES = 1024


class Outgoing:
    """Prepares items for one run of one process.

    Args:
        resource: resource to put on every item; None to leave the host application's.
    """

    _kind = "item"

    def __init__(self, resource: Resource | None) -> None:
        self.resource = resource
        # Scopes of late that need no mending, by id; kept, so that their ids stay theirs.
        self._sound: dict[int, Any] = {}

    def parts(self, batch: Sequence[Any]) -> Iterator[list[Any]]:
        """Yield the prepared items of a batch in parts that fit into one message."""
        return in_parts(batch, self._prepare, self._kind)

    def _prepare(self, item: Any) -> tuple[Any, int]:
        raise NotImplementedError

    def _scope(self, scope: Any) -> Any:
        sound = sound_scope(scope)
        if sound is scope:
            if len(self._sound) >= _MOST_SCOPES:
                self._sound.clear()
            self._sound[id(scope)] = scope
        return sound


class OutgoingSpans(Outgoing):
    """Prepares finished spans."""

    _kind = "span"

    def _prepare(self, item: ReadableSpan) -> tuple[ReadableSpan, int]:
        resource = self.resource if self.resource is not None else item.resource
        scope = item.instrumentation_scope
        if id(scope) not in self._sound:
            sound = self._scope(scope)
            if sound is not scope:
                item = _copy(item, resource, instrumentation_scope=sound)
        try:
            weight = _weigh_span(item)
        except UnsendableError:
            mended = _mended(item, resource)
            return mended, _weigh_span(mended)
        return (item if item.resource is resource else _copy(item, resource)), weight


class OutgoingLogs(Outgoing):
    """Prepares log records."""

    _kind = "log record"

    def _prepare(self, item: Any) -> tuple[Any, int]:
        # Copies: a host application's own exporters may be given the same record. Items are frozen in later versions.
        scope = item.instrumentation_scope
        if id(scope) not in self._sound:
            sound = self._scope(scope)
            if sound is not scope:
                item = copy(item)
                object.__setattr__(item, "instrumentation_scope", sound)
        record = item.log_record
        try:
            weight = _weigh_record(record)
        except UnsendableError:
            item, record = copy(item), copy(record)
            record.attributes = _compat.log_attributes(clean_mapping(record.attributes))
            record.body = mended_value(record.body)
            for field in _NAMES:
                if getattr(record, field, None) is not None:
                    setattr(record, field, sound_name(getattr(record, field)))
            record.timestamp = sound_time(record.timestamp)
            record.observed_timestamp = sound_time(record.observed_timestamp)
            object.__setattr__(item, "log_record", record)
            weight = _weigh_record(record)
        return _compat.log_with_resource(item, self.resource), weight


def _mended(span: ReadableSpan, resource: Resource) -> ReadableSpan:
    status = span.status
    events, links = span.events, span.links
    return _copy(
        span,
        resource,
        name=clean_text(span.name),
        attributes=clean_mapping(span.attributes),
        events=[
            Event(clean_text(event.name), clean_mapping(event.attributes), sound_time(event.timestamp))
            for event in events
        ],
        links=[Link(link.context, clean_mapping(link.attributes)) for link in links],
        status=Status(status.status_code, clean_text(status.description)) if status.description else status,
        start_time=sound_time(span.start_time),
        end_time=sound_time(span.end_time),
    )


def _copy(span: ReadableSpan, resource: Resource, **changes: Any) -> ReadableSpan:
    fields: dict[str, Any] = {
        "name": span.name,
        "context": span.context,
        "parent": span.parent,
        "resource": resource,
        **_compat.bounded(span),
        "kind": span.kind,
        "status": span.status,
        "start_time": span.start_time,
        "end_time": span.end_time,
        "instrumentation_scope": span.instrumentation_scope,
    }
    return ReadableSpan(**{**fields, **changes})


def _weigh_span(span: ReadableSpan) -> int:
    check_time(span.start_time)
    check_time(span.end_time)
    weight = _SPAN + weigh_text(span.name) + weigh(span.attributes)
    events, links = _compat.events_and_links(span)
    for event in events:
        check_time(event.timestamp)
        weight += _EVENT + weigh_text(event.name) + weigh(event.attributes)
    for link in links:
        state = link.context.trace_state
        weight += _LINK + weigh(link.attributes) + (len(state.to_header()) if state else 0)
    description = span.status.description
    return weight + weigh_text(description) if description else weight


# The texts of a log record that are no attributes; the second came with a later version.
_NAMES = ("severity_text", "event_name")


def _weigh_record(record: Any) -> int:
    check_time(record.timestamp)
    check_time(record.observed_timestamp)
    weight = _RECORD + weigh(record.attributes) + weigh_value(record.body)
    level = record.severity_text
    if level is not None:
        weight += weigh_name(level)
    event = getattr(record, "event_name", None)
    return weight if event is None else weight + weigh_name(event)
