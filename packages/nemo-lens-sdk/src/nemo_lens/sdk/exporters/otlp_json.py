"""OTLP JSON: a line of text from the protobuf message of an export request.

Protobuf's own JSON mapping is nearly the same, but writes ids in base64 where OTLP wants hex, and takes three times as
long.
"""

from __future__ import annotations

import base64
import importlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from nemo_lens.sdk.exporters._plan import Signal

    _Convert = Callable[[Any], Any]
    _Fields = dict[int, tuple[str, bool, _Convert | None]]

# The official encoders from SDK objects to request messages.
_ENCODERS: dict[Signal, tuple[str, str]] = {
    "traces": ("opentelemetry.exporter.otlp.proto.common.trace_encoder", "encode_spans"),
    "metrics": ("opentelemetry.exporter.otlp.proto.common.metrics_encoder", "encode_metrics"),
    "logs": ("opentelemetry.exporter.otlp.proto.common._log_encoder", "encode_logs"),
}

_HEX_FIELDS = frozenset({"trace_id", "span_id", "parent_span_id"})

# Without the check for circles: the message is a tree.
_to_text = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode


def line_encoder(signal: Signal) -> Callable[[Any], bytes]:
    """Return the function from a batch of SDK objects to one line of OTLP JSON, empty for an empty batch.

    Follows https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and
    https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/.
    """
    module, name = _ENCODERS[signal]
    to_message: Callable[[Any], Message] = getattr(importlib.import_module(module), name)

    def encode(batch: Any) -> bytes:
        content = to_json(to_message(batch))
        return f"{_to_text(content)}\n".encode("ascii") if content else b""

    return encode


def to_json(message: Message) -> dict[str, Any]:
    """Return an OTLP message as what ``json`` can write."""
    fields = _FIELDS.get(message.DESCRIPTOR.full_name) or _fields_of(message.DESCRIPTOR)
    return _walk(message, fields)


def _walk(message: Any, fields: _Fields) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for field, value in message.ListFields():
        name, repeated, convert = fields[field.number]
        if repeated:
            content[name] = list(map(convert, value)) if convert else list(value)
        else:
            content[name] = convert(value) if convert else value
    return content


def _number(value: float) -> float | str:
    if value - value == 0.0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


# Most of a message is attributes: these two are written out, twice as fast as the walk.
def _key_value(message: Any) -> dict[str, Any]:
    return {"key": message.key, "value": _any_value(message.value)}


def _any_value(message: Any) -> dict[str, Any]:
    kind = message.WhichOneof("value")
    if kind not in _ANY_VALUES:  # nothing set, or a kind newer than this table
        return to_json(message)
    name, convert = _ANY_VALUES[kind]
    value = getattr(message, kind)
    return {name: convert(value) if convert else value}


def _values_of(convert: _Convert) -> _Convert:
    return lambda message: {"values": list(map(convert, message.values))} if message.values else {}


_ANY_VALUES: dict[str, tuple[str, _Convert | None]] = {
    "string_value": ("stringValue", None),
    "bool_value": ("boolValue", None),
    "int_value": ("intValue", str),
    "double_value": ("doubleValue", _number),
    "array_value": ("arrayValue", _values_of(_any_value)),
    "kvlist_value": ("kvlistValue", _values_of(_key_value)),
    "bytes_value": ("bytesValue", _base64),
}

_WRITTEN_OUT: dict[str, _Convert] = {
    "opentelemetry.proto.common.v1.KeyValue": _key_value,
    "opentelemetry.proto.common.v1.AnyValue": _any_value,
}

# Message type to field number to JSON name, whether it is repeated, and the conversion of one value; filled on the way.
_FIELDS: dict[str, _Fields] = {}


# Descriptors are Any: protobuf's stubs are behind its releases.
def _fields_of(descriptor: Any) -> _Fields:
    if descriptor.full_name not in _FIELDS:
        _FIELDS[descriptor.full_name] = {
            field.number: (field.json_name, _is_repeated(field), _converter(field)) for field in descriptor.fields
        }
    return _FIELDS[descriptor.full_name]


def _is_repeated(field: Any) -> bool:
    # The old name goes, with a warning on its way, and protobuf 5 has no other.
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _converter(field: Any) -> _Convert | None:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        message_type = field.message_type
        if message_type.full_name in _WRITTEN_OUT:
            return _WRITTEN_OUT[message_type.full_name]
        fields = _fields_of(message_type)
        return lambda message: _walk(message, fields)
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
        return str
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return _number
    if field.type == field.TYPE_BYTES:
        return bytes.hex if field.name in _HEX_FIELDS else _base64
    return None
