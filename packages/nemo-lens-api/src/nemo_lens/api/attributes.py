"""Attribute cleaning, on every path the same: values by one table, strings by one rule, redaction by key."""

from __future__ import annotations

from itertools import islice

from nemo_lens.api import _text
from nemo_lens.api._diagnostics import debug_once
from nemo_lens.api._redaction import DEFAULT_RULES, rules_for
from nemo_lens.api._text import clean_str
from nemo_lens.api._text import text_limit as text_limit
from nemo_lens.api._values import AttributeValue as AttributeValue
from nemo_lens.api._values import UnusableValueError, clean_value, type_name
from nemo_lens.api.fallbacks import DEFAULT_REDACT_KEYS as DEFAULT_REDACT_KEYS
from nemo_lens.api.fallbacks import REDACTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from nemo_lens.api._redaction import RedactionRules

_MAX_KEY_LENGTH = 1024
# A mapping that is not a dict may never end.
_MAX_ATTRIBUTES = 4096


def clean_attributes(
    attrs: Mapping[str, object] | None, redact_keys: Iterable[str] = DEFAULT_REDACT_KEYS
) -> dict[str, AttributeValue]:
    """Convert attributes to what is sent; never raise.

    bool, int, float and str are kept; an int beyond 64 bits becomes decimal text. numpy scalars and CPU tensors of no
    dimension become the number they hold, enum members their value, paths, UUIDs, dates and UTF-8 bytes a str. A
    list, tuple, deque or range of one of these becomes a tuple: numbers of both kinds become floats, ints of which one
    is beyond 64 bits all become text, None is left out, and past 8192 items or 262144 characters it is cut. None is
    skipped, everything else dropped with one DEBUG line per key. Strings lose lone surrogates (U+FFFD) and what is
    beyond the limit: 8192 characters or ``OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT``.

    Args:
        attrs: attributes by key.
        redact_keys: keys, as for :func:`redact_value`, whose strings are replaced by ``[REDACTED]``.

    Returns:
        A new dict of what is left.
    """
    cleaned: dict[str, Any] = {}
    if attrs is None:
        return cleaned
    rules = DEFAULT_RULES if redact_keys is DEFAULT_REDACT_KEYS else rules_for(redact_keys)
    ordinary = rules.ordinary
    longest = _text.limit
    try:
        items: Iterable[tuple[Any, Any]] = attrs.items()
        for key, value in items if type(attrs) is dict else islice(items, _MAX_ATTRIBUTES):
            # Plain values under keys seen before: identity of the type, no call but isascii.
            if type(key) is str and key in ordinary:
                kind = type(value)
                if kind is str:
                    if len(value) <= longest and value.isascii():
                        cleaned[key] = value
                        continue
                elif kind is int:
                    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
                        cleaned[key] = value
                        continue
                elif kind is float or kind is bool:
                    cleaned[key] = value
                    continue
            _put(cleaned, key, value, rules)
    except Exception as fault:  # noqa: BLE001 - whatever the mapping is, it must not reach the caller
        debug_once(
            ("attributes", type_name(attrs), type_name(fault)),
            "attributes of a %s could not be read to the end: %s",
            type_name(attrs),
            type_name(fault),
        )
    return cleaned


def cleaned_keywords(attrs: dict[str, Any]) -> dict[str, Any]:
    """Clean attributes that nobody else holds: returned as they are when nothing is to be done, which saves a copy."""
    ordinary = DEFAULT_RULES.ordinary
    longest = _text.limit
    for key, value in attrs.items():
        if key not in ordinary:
            break
        kind = type(value)
        if kind is int:
            if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
                break
        elif kind is str:
            if len(value) > longest or not value.isascii():
                break
        elif kind is not float and kind is not bool:
            break
    else:
        return attrs
    return clean_attributes(attrs)


def clean_text(text: object, limit: int | None = None) -> str:
    """Return a span name, an event name or a description as it is sent; never raise.

    Args:
        text: a str, or anything that becomes one as an attribute; what does not is named by its type. None is empty.
        limit: most characters to keep; default that of attribute values.
    """
    longest = text_limit() if limit is None else limit
    if type(text) is str:
        return clean_str(text, longest)
    try:
        value = clean_value("text", text)
    except Exception:  # noqa: BLE001 - whatever it is, it must not reach the caller
        return clean_str(f"<{type_name(text)}>", longest)
    if value is None:
        return ""
    return clean_str(value if type(value) is str else repr(value), longest)


def redact_value(key: str, value: object, redact_keys: Iterable[str] = DEFAULT_REDACT_KEYS) -> object:
    """Return the value, or ``[REDACTED]`` when its key says that it must not leave the process; never raise.

    A key matches when it, or its last dot-separated segment, equals a redact key, ignoring case and taking ``-`` for
    ``_``; and when that segment ends in ``_`` and one of ``password``, ``secret``, ``token``, ``api_key``,
    ``access_key`` or ``authorization`` that is among the redact keys.

    Args:
        key: attribute key.
        value: its value. Numbers, booleans and None stay; in a list or tuple each string is replaced.
        redact_keys: the keys; extend the default by ``DEFAULT_REDACT_KEYS | {"my_key"}``.
    """
    if not issubclass(type(key), str):
        return value
    name = clean_str(str.__str__(key), _MAX_KEY_LENGTH)
    return _without_text(value) if name and rules_for(redact_keys).cover(name) else value


def safe_set_span_attributes(
    span: Any, attrs: Mapping[str, object] | None, redact_keys: Iterable[str] = DEFAULT_REDACT_KEYS
) -> None:
    """Set attributes, cleaned and redacted, on a span; never raise.

    Args:
        span: the span; None and one that is not recording are left alone.
        attrs: attributes by key; what cannot be sent is dropped.
        redact_keys: keys, as for :func:`redact_value`, whose strings are replaced by ``[REDACTED]``.
    """
    if span is None or attrs is None:
        return
    try:
        if span.is_recording():
            span.set_attributes(clean_attributes(attrs, redact_keys))
    except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not reach the caller
        debug_once(
            ("set attributes", type_name(span), type_name(fault)),
            "attributes of a %s could not be set: %s",
            type_name(span),
            type_name(fault),
        )


def _put(cleaned: dict[str, Any], key: object, value: object, rules: RedactionRules) -> None:
    name = _clean_key(key)
    if name is None:
        return
    try:
        usable = clean_value(name, value)
    except UnusableValueError as reason:
        debug_once(("attribute", name), "attribute %r dropped: %s", name, reason)
        return
    except Exception as fault:  # noqa: BLE001 - an item() or a time zone that fails
        debug_once(("attribute", name), "attribute %r dropped: a %s gives %s", name, type_name(value), type_name(fault))
        return
    if usable is None:
        return
    if rules.cover(name):
        if type(usable) is str:
            usable = REDACTED
        elif type(usable) is tuple and usable and type(usable[0]) is str:
            usable = (REDACTED,) * len(usable)
    cleaned[name] = usable


def _clean_key(key: Any) -> str | None:
    if not issubclass(type(key), str):
        name = type_name(key)
        debug_once(("attribute key", name), "attribute dropped: its key is a %s, not a str", name)
        return None
    text = clean_str(str.__str__(key), _MAX_KEY_LENGTH)
    if not text:
        debug_once(("attribute key", ""), "attribute dropped: its key is empty")
        return None
    return text


def _without_text(value: Any, inside: bool = False) -> Any:
    kind = type(value)
    if not inside and issubclass(kind, list):
        return [_without_text(item, inside=True) for item in list.__iter__(value)]
    if not inside and issubclass(kind, tuple):
        return tuple([_without_text(item, inside=True) for item in tuple.__iter__(value)])
    if kind is int:
        return value  # also beyond 64 bits, where it is sent as text
    try:
        usable = clean_value("", value)
    except Exception:  # noqa: BLE001 - what cannot be looked into may hold text
        return REDACTED
    return REDACTED if type(usable) is str or type(usable) is tuple else value
