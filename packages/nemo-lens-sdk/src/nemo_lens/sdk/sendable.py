"""What can be sent, and how much it takes in a message: names, attributes, values, instrumentation scopes.

A lone surrogate or a 70-bit integer cannot be encoded and would spoil the whole message that it is in; a 5 MB string
exceeds what receivers take. To weigh is to find these, too: it raises ``UnsendableError``, and then it is mended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from nemo_lens.api import _text
from nemo_lens.api._diagnostics import warn_once
from nemo_lens.api._values import INT64_MAX, INT64_MIN
from nemo_lens.api.attributes import clean_attributes, clean_text, text_limit

# A gRPC receiver accepts 4 MiB by default; the estimate below is one, so it stays well under.
MAX_PART_CHARACTERS = 2 * 1024 * 1024
# What an attribute takes beside its text: tags, lengths, a number.
OVERHEAD = 16
# Characters of a name, on which the limit of attribute values has no say.
_NAME_LIMIT = _text.DEFAULT_TEXT_LIMIT
# Times are nanoseconds in a fixed64.
_LATEST = 2**64 - 1
# Attributes of ours must not be redacted twice: what was redacted is text already, and what was not was the user's
# own span.set_attribute.
_NO_REDACTION: tuple[str, ...] = ()

_Item = TypeVar("_Item")


class UnsendableError(Exception):
    """A value that no exporter can encode, or that is too long."""


def in_parts(items: Iterable[_Item], prepare: Callable[[_Item], tuple[_Item, int]], kind: str) -> Iterator[list[_Item]]:
    """Yield items, prepared, in parts that fit into one message.

    One that is too large for any comes alone, and after all others: the exporter may try for long to deliver it.

    Args:
        items: what is to be sent.
        prepare: returns an item as it can be sent, and about how many characters it takes. Where it raises, the item is
            lost, with a WARNING.
        kind: what messages call an item.
    """
    part: list[_Item] = []
    alone: list[_Item] = []
    size = 0
    for item in items:
        try:
            prepared, weight = prepare(item)
        except Exception as fault:  # noqa: BLE001 - one item must not take the others of its batch with it
            name = type(fault).__name__
            warn_once(("prepare", kind, name), "a %s could not be prepared for export and is lost: %s", kind, name)
            continue
        if size + weight > MAX_PART_CHARACTERS:
            if weight > MAX_PART_CHARACTERS:
                alone.append(prepared)
                _warn_of_size(kind, prepared, weight)
                continue
            yield part
            part, size = [], 0
        part.append(prepared)
        size += weight
    if part:
        yield part
    for item in alone:
        yield [item]


def _warn_of_size(kind: str, item: Any, weight: int) -> None:
    if weight > 2 * MAX_PART_CHARACTERS:
        warn_once(
            ("size", kind),
            "a %s %r takes about %.1f MiB: it is sent alone, and receivers take 4 MiB by default over gRPC",
            kind,
            getattr(item, "name", ""),
            weight / 2**20,
        )


def sound_name(name: Any) -> str:
    """Return a name that is no attribute, of a scope or a level, as it can be sent."""
    return clean_text(name, _NAME_LIMIT)


def weigh_name(name: Any) -> int:
    """Return how many bytes such a name takes; raises ``UnsendableError``."""
    return _weigh_text(name, _NAME_LIMIT)


def sound_time(value: Any) -> int | None:
    """Return a time, in nanoseconds, as it can be sent. Raises what ``int`` raises."""
    return None if value is None else min(max(int(value), 0), _LATEST)


def check_time(value: Any) -> None:
    """Raise ``UnsendableError`` for a time that no exporter can encode, such as one of a float."""
    if value is not None and (type(value) is not int or not 0 <= value <= _LATEST):
        raise UnsendableError


def sound_scope(scope: Any) -> Any:
    """Return an instrumentation scope as it can be sent, which nearly always is the same object."""
    if scope is None:
        return None
    names = [scope.name, scope.version, scope.schema_url]
    # None is sent as such.
    clean = [name if name is None else sound_name(name) for name in names]
    attributes = scope.attributes
    try:
        weigh(attributes)
    except UnsendableError:
        attributes = clean_mapping(attributes)
    if clean == names and attributes is scope.attributes:
        return scope
    name, version, schema_url = clean
    return InstrumentationScope(name or "", version, schema_url, attributes)


def clean_mapping(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return attributes as they can be sent."""
    flat = dict(attributes or {})
    # The SDK lets mappings through where the API's cleaning has none.
    nested = {clean_text(key): mended_value(flat.pop(key)) for key in list(flat) if isinstance(flat[key], Mapping)}
    return {**clean_attributes(flat, _NO_REDACTION), **nested}


def mended_value(value: Any) -> Any:
    """Return the body of a log record, or a part of one, as it can be sent."""
    if isinstance(value, Mapping):
        return {clean_text(key): mended_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [mended_value(part) for part in value]
    try:
        weigh_value(value)
    except UnsendableError:
        return clean_text(value)
    return value


def weigh(attributes: Mapping[str, Any] | None) -> int:
    """Return about how many characters the attributes take in a message; raises ``UnsendableError``."""
    if not attributes:
        return 0
    longest = _text.limit
    # The SDK's mapping is slow to iterate, one call a key; its copy is a plain dict.
    try:
        plain = attributes.copy()  # type: ignore[attr-defined] # any other mapping is slower, and rare
    except AttributeError:
        plain = attributes
    total = OVERHEAD * len(plain)
    for key, value in plain.items():
        kind = type(value)
        if kind is str:
            length = len(value)
            total += length if length <= longest and value.isascii() else weigh_text(value)
        elif kind is int:
            if not INT64_MIN <= value <= INT64_MAX:
                raise UnsendableError
        elif kind is not bool and kind is not float:
            total += weigh_value(value)
        total += len(key) if key.isascii() else weigh_text(key)
    return total


def weigh_value(value: Any) -> int:
    """Return about how many characters a value takes in a message; raises ``UnsendableError``."""
    if isinstance(value, str):
        return weigh_text(value)
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise UnsendableError
        return 0
    if isinstance(value, (tuple, list)):
        return sum(OVERHEAD + weigh_value(part) for part in value)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise UnsendableError
        return weigh(value)
    if value is None or isinstance(value, float):
        return 0
    raise UnsendableError


def weigh_text(text: Any) -> int:
    """Return how many bytes a text takes; raises ``UnsendableError``."""
    # Most, in one step; the limit is below 0 until it has been read.
    if type(text) is str and len(text) <= _text.limit and text.isascii():
        return len(text)
    return _weigh_text(text, text_limit())


def _weigh_text(text: Any, longest: int) -> int:
    # What no type checker saw may have named a span by something else.
    if not isinstance(text, str) or len(text) > longest:
        raise UnsendableError
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise UnsendableError from None
