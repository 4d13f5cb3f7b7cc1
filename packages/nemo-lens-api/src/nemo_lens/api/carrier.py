"""``OTEL_RESOURCE_ATTRIBUTES``: the resource of a process, carried to the processes it starts.

Follows the OpenTelemetry resource specification: ``key=value`` pairs joined by commas, as in W3C Baggage without
metadata, keys and values percent-encoded.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from urllib.parse import quote, unquote

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.api._text import NO_TEXT_LIMIT, clean_str
from nemo_lens.api._values import INT64_MAX, INT64_MIN, UnusableValueError, clean_value, type_name
from nemo_lens.api.semconv import NV_DL_RANK, NV_DL_WORLD_SIZE, RESOURCE_FIELDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping
    from typing import Any

    from nemo_lens.api._values import Scalar

VARIABLE = "OTEL_RESOURCE_ATTRIBUTES"

# Baggage octets of W3C: printable ASCII without blank, quote, comma, semicolon and backslash.
_KEY = re.compile(r"[!#-+\--:<-\[\]-~]+")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})")

# More may be encoded than must be: it spares shells, and readers that take '+' for a blank, surprises.
_LEFT_AS_IS = "/:@"


def parse_otel_resource_attributes(text: str | None) -> dict[str, str | int]:
    """Read the text of ``OTEL_RESOURCE_ATTRIBUTES``; never raise.

    Integers of known keys are restored: blanks around them, a sign and leading zeros are understood, anything else
    stays text with one WARNING. In values, bytes that are no UTF-8 become U+FFFD, as W3C Baggage says, and characters
    that should have been encoded are taken as they stand. Pairs that cannot be read are dropped with one WARNING each;
    of two with the same key the last wins.

    Args:
        text: the text; None and blank are empty.

    Returns:
        Attributes by key, in the order of the text.
    """
    if text is None:
        return {}
    if not isinstance(text, str):
        _drop(f"<{type_name(text)}>", "text is expected")
        return {}
    attributes: dict[str, str | int] = {}
    for pair in text.split(","):
        if not pair.strip():
            continue
        try:
            key, value = _decoded(pair)
        except ValueError as problem:
            _drop(pair.strip(), str(problem))
        else:
            attributes[key] = value
    return attributes


def format_otel_resource_attributes(attrs: Mapping[str, object]) -> str:
    """Write attributes as the text of ``OTEL_RESOURCE_ATTRIBUTES``; never raise.

    Args:
        attrs: attributes by key. Values are strings, numbers, booleans (``true``, ``false``) and what becomes one of
            these as a span attribute; None is left out, anything else dropped with one WARNING per key.

    Returns:
        The text, in the order of ``attrs``; percent-encoded but for letters, digits and ``-._~/:@``.
    """
    return ",".join(f"{quote(key, _LEFT_AS_IS)}={quote(_text(value), _LEFT_AS_IS)}" for key, value in _usable(attrs))


def get_otel_resource_attributes(environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """Read the attributes this process has inherited.

    Args:
        environ: the environment; default ``os.environ``.

    Returns:
        As :func:`parse_otel_resource_attributes`.
    """
    return parse_otel_resource_attributes((os.environ if environ is None else environ).get(VARIABLE))


def extend_otel_resource_attributes(
    attrs: Mapping[str, object] | None,
    environ: Mapping[str, str] | None = None,
    defaults: Mapping[str, object] | None = None,
) -> str:
    """Return the text that hands on what was inherited and adds to it; the environment stays as it is.

    A value of ``attrs`` that is None or cannot be carried leaves the inherited one in place.

    Args:
        attrs: attributes that win over inherited ones.
        environ: the environment; default ``os.environ``.
        defaults: attributes that inherited ones win over.

    Returns:
        As :func:`format_otel_resource_attributes`.
    """
    merged: dict[str, object] = {}
    for layer in (defaults, get_otel_resource_attributes(environ), attrs):
        merged.update(_usable(layer))
    return format_otel_resource_attributes(merged)


def set_otel_resource_attributes(attrs: Mapping[str, object], environ: MutableMapping[str, str] | None = None) -> str:
    """Make ``attrs`` what the processes started from here inherit, in place of what was there.

    Args:
        attrs: attributes, as for :func:`format_otel_resource_attributes`; none at all remove the variable.
        environ: the environment; default ``os.environ``.

    Returns:
        The text that was set.
    """
    text = format_otel_resource_attributes(attrs)
    _store(os.environ if environ is None else environ, text or None)
    return text


@contextmanager
def publish_otel_resource_attributes(
    attrs: Mapping[str, object], environ: MutableMapping[str, str] | None = None
) -> Iterator[str]:
    """Set the attributes as :func:`set_otel_resource_attributes` does, inside a block.

    After the block the variable is what it was before, to the letter, or absent as it was, whatever the block did.

    Args:
        attrs: attributes that replace the inherited ones; to add, pass
            ``{**get_otel_resource_attributes(), **more}``.
        environ: the environment; default ``os.environ``.

    Yields:
        The text that was set.
    """
    target = os.environ if environ is None else environ
    before = target.get(VARIABLE)
    try:
        yield set_otel_resource_attributes(attrs, target)
    finally:
        _store(target, before)


def check_resource_attributes(attrs: Mapping[str, object]) -> list[str]:
    """Say what is wrong with resource attributes; never raise.

    Args:
        attrs: attributes by key.

    Returns:
        One sentence per problem: what cannot be carried or is not of the type of its key, a known name in another
        spelling, a rank outside the world size. Empty when there is none.
    """
    if attrs is not None and not issubclass(type(attrs), dict) and not hasattr(type(attrs), "items"):
        return [f"resource attributes must be a mapping, got a {type_name(attrs)}"]
    problems: list[str] = []
    known = {_letters(name): name for name in RESOURCE_FIELDS}
    good: dict[str, Any] = {}
    for key, value in _items(attrs):
        name, usable, problem = _checked(key, value)
        expected = RESOURCE_FIELDS.get(name)
        if problem is None and usable is not None:
            if type(value) is int and type(usable) is str:
                problem = "an int beyond 64 bits is carried as text"
            elif expected is not None and type(usable) is not expected:
                problem = f"{'an int' if expected is int else 'a str'} is expected, got a {type_name(usable)}"
            elif expected is None and _letters(name) in known:
                problem = f"unknown name, did you mean {known[_letters(name)]!r}?"
        if problem is None:
            good[name] = usable
        else:
            problems.append(f"{name!r}: {problem}")
    rank, size = good.get(NV_DL_RANK), good.get(NV_DL_WORLD_SIZE)
    if rank is not None and (rank < 0 or (size is not None and rank >= size)):
        problems.append(f"{NV_DL_RANK!r}: there is no rank {rank}{'' if size is None else f' in a world of {size}'}")
    return problems


def parse_integer(text: str) -> int | None:
    """Return the integer that ``text`` writes: blanks around it, a sign and leading zeros are understood.

    Returns:
        The integer; None when it is none in ASCII digits or has more than 64 bits.
    """
    match = _INTEGER.fullmatch(text.strip())
    number = int(match[1] + match[2]) if match else INT64_MAX + 1
    return number if INT64_MIN <= number <= INT64_MAX else None


def _decoded(pair: str) -> tuple[str, str | int]:
    encoded_key, equals, encoded_value = (part.strip() for part in pair.partition("="))
    if not equals:
        raise ValueError("it has no '='")
    if not _KEY.fullmatch(encoded_key) or _BROKEN_ESCAPE.search(encoded_key):
        raise ValueError("its key must be printable ASCII, anything else percent-encoded")
    if _BROKEN_ESCAPE.search(encoded_value):
        raise ValueError("'%' must be followed by two hexadecimal digits; '%' itself is written %25")
    try:
        key = unquote(encoded_key, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("its key is no UTF-8") from None
    if not key.strip():
        raise ValueError("its key is blank")
    value = clean_str(unquote(encoded_value), NO_TEXT_LIMIT)
    return key, _restored(key, value) if RESOURCE_FIELDS.get(key) is int else value


def _restored(key: str, text: str) -> str | int:
    number = parse_integer(text)
    if number is not None:
        return number
    warn_once(
        ("resource integer", key, text),
        "%s: %r is kept as the text %r: an integer of 64 bits in ASCII digits is expected",
        VARIABLE,
        key,
        text[:80],
    )
    return text


def _text(value: Scalar) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    return value if type(value) is str else repr(value)


def _checked(key: Any, value: object) -> tuple[str, Scalar | None, str | None]:
    """Return the key as a str, the value as it can be carried (None for None) and what is wrong with the two."""
    if not issubclass(type(key), str):
        return f"<{type_name(key)}>", None, "a key must be a str"
    name = clean_str(str.__str__(key), NO_TEXT_LIMIT)
    if not name.strip():
        return name, None, "a key must not be blank"
    try:
        usable = clean_value(name, value, NO_TEXT_LIMIT)
    except UnusableValueError as reason:
        return name, None, str(reason)
    except Exception as fault:  # noqa: BLE001 - an item() or a time zone that fails
        return name, None, f"a {type_name(value)} gives {type_name(fault)}"
    if isinstance(usable, tuple):
        return name, None, "a sequence cannot be carried"
    return name, usable, None


def _usable(attrs: Mapping[str, object] | None) -> Iterator[tuple[str, Scalar]]:
    for key, value in _items(attrs):
        name, usable, problem = _checked(key, value)
        if problem is not None:
            _drop(name, problem)
        elif usable is not None:
            yield name, usable


def _items(attrs: Mapping[str, object] | None) -> list[tuple[Any, Any]]:
    if attrs is None:
        return []
    try:
        return [(key, value) for key, value in attrs.items()]  # unpacked here, where what is no pair may fail
    except Exception as fault:  # noqa: BLE001 - whatever the mapping is, it must not reach the caller
        _drop(f"<{type_name(attrs)}>", f"its items cannot be read: {type_name(fault)}")
        return []


def _letters(name: str) -> str:
    return re.sub(r"[-_. ]", "", name).casefold()


def _store(environ: MutableMapping[str, str], text: str | None) -> None:
    if text is None:
        environ.pop(VARIABLE, None)
    else:
        environ[VARIABLE] = text


def _drop(what: str, problem: str) -> None:
    warn_once(("resource attribute", what, problem), "%s: %r is dropped: %s", VARIABLE, what[:80], problem)
