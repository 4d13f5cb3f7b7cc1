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
from nemo_lens.api._text import clean_str
from nemo_lens.api._values import INT64_MAX, INT64_MIN, UnusableValueError, clean_value, type_name
from nemo_lens.api.semconv import NV_DL_RANK, NV_DL_WORLD_SIZE, RESOURCE_FIELDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping
    from typing import Any

VARIABLE = "OTEL_RESOURCE_ATTRIBUTES"

# Baggage octets: printable ASCII without blank, quote, comma, semicolon and backslash.
_KEY = re.compile(r"[!#-+\--:<-\[\]-~]+")
_INTEGER = re.compile(r"[+-]?0*([0-9]{1,19})")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")

# Beyond what every reader must decode alike; encoding more than that is always allowed, and spares shells surprises.
_LEFT_AS_IS = "/:@"

# Resource attributes are not cut: they are few, and what is cut no longer names anything.
_NO_LIMIT = 2**63


def parse_otel_resource_attributes(text: str | None) -> dict[str, str | int]:
    """Read the text of ``OTEL_RESOURCE_ATTRIBUTES``; never raise.

    Integers of known keys are restored: blanks around them, a sign and leading zeros are understood. Bytes that are
    no UTF-8 become U+FFFD, as W3C Baggage says. Pairs that cannot be read are dropped with one WARNING each; of two
    with the same key the last wins.

    Args:
        text: the text; None and blank are empty.

    Returns:
        Attributes by key, in the order of the text.
    """
    attributes: dict[str, str | int] = {}
    for pair in (text or "").split(","):
        if not pair.strip():
            continue
        encoded_key, equals, encoded_value = pair.partition("=")
        key = _decoded_key(encoded_key.strip())
        if key is None or not equals:
            _dropped(pair.strip(), "a key of printable ASCII, '=' and a value, percent-encoded, are expected")
            continue
        if _BROKEN_ESCAPE.search(encoded_value):
            warn_once(
                ("resource escape", key),
                "%s: '%%' in the value of %r starts no percent-encoded byte and is taken as it stands",
                VARIABLE,
                key,
            )
        value = clean_str(unquote(encoded_value.strip()), _NO_LIMIT)
        attributes[key] = _restored(key, value) if RESOURCE_FIELDS.get(key) is int else value
    return attributes


def format_otel_resource_attributes(attrs: Mapping[str, object]) -> str:
    """Write attributes as the text of ``OTEL_RESOURCE_ATTRIBUTES``; never raise.

    Args:
        attrs: attributes by key. Values are strings, numbers, booleans (``true``, ``false``) and what becomes one of
            these as a span attribute; None is left out, anything else dropped with one WARNING per key.

    Returns:
        The text, in the order of ``attrs``; percent-encoded but for letters, digits and ``-._~/:@``.
    """
    pairs = []
    for key, value in _items(attrs):
        name, problem = _checked_key(key)
        if problem is None:
            text, problem = _value_text(name, value)
            if text is not None:
                pairs.append(f"{quote(name, _LEFT_AS_IS)}={quote(text, _LEFT_AS_IS)}")
        if problem is not None:
            _dropped(name, problem)
    return ",".join(pairs)


def get_otel_resource_attributes(environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """Read the attributes this process has inherited.

    Args:
        environ: the environment; default ``os.environ``.

    Returns:
        As :func:`parse_otel_resource_attributes`.
    """
    return parse_otel_resource_attributes((os.environ if environ is None else environ).get(VARIABLE))


def extend_otel_resource_attributes(
    attrs: Mapping[str, object],
    environ: Mapping[str, str] | None = None,
    defaults: Mapping[str, object] | None = None,
) -> str:
    """Return the text that hands on what was inherited and adds to it; the environment stays as it is.

    Args:
        attrs: attributes that win over inherited ones; one that is None leaves the inherited one.
        environ: the environment; default ``os.environ``.
        defaults: attributes that inherited ones win over.

    Returns:
        As :func:`format_otel_resource_attributes`.
    """
    merged: dict[Any, object] = dict(_items(defaults))
    merged.update(get_otel_resource_attributes(environ))
    merged.update((key, value) for key, value in _items(attrs) if value is not None)
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
        attrs: attributes that replace the inherited ones; ``extend_otel_resource_attributes`` makes a text of both.
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
        One sentence per problem: what would be dropped or change its type on the way, a known name spelled
        differently, a rank outside the world size. Empty when there is none.
    """
    if attrs is not None and not hasattr(type(attrs), "items"):
        return [f"resource attributes must be a mapping, got a {type_name(attrs)}"]
    problems = []
    known = {_bare(name): name for name in RESOURCE_FIELDS}
    good: dict[str, Any] = {}
    for key, value in _items(attrs):
        name, problem = _checked_key(key)
        if problem is None:
            problem = _value_text(name, value)[1]
        expected = RESOURCE_FIELDS.get(name)
        if problem is None and expected is not None and value is not None and type(value) is not expected:
            problem = f"expected {'an int' if expected is int else 'a str'}, got a {type_name(value)}"
        if problem is None and expected is None and _bare(name) in known:
            problem = f"unknown name, did you mean {known[_bare(name)]!r}?"
        if problem is None and type(value) is int and not INT64_MIN <= value <= INT64_MAX:
            problem = "an int beyond 64 bits is sent as text"
        if problem is None:
            good[name] = value
        else:
            problems.append(f"{name!r}: {problem}")
    rank, size = good.get(NV_DL_RANK), good.get(NV_DL_WORLD_SIZE)
    if rank is not None and (rank < 0 or (size is not None and rank >= size)):
        problems.append(f"{NV_DL_RANK!r}: {rank} is no rank of a world of {'any size' if size is None else size}")
    return problems


def _decoded_key(encoded: str) -> str | None:
    if not _KEY.fullmatch(encoded):
        return None
    try:
        key = unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        return None
    return key if key.strip() else None


def _restored(key: str, text: str) -> str | int:
    match = _INTEGER.fullmatch(text.strip())
    if match is not None:
        number = int(match[1])
        if text.strip().startswith("-"):
            number = -number
        if INT64_MIN <= number <= INT64_MAX:
            return number
    warn_once(
        ("resource integer", key, text),
        "%s: %r is kept as the text %r: an integer of 64 bits in ASCII digits is expected",
        VARIABLE,
        key,
        text[:80],
    )
    return text


def _checked_key(key: Any) -> tuple[str, str | None]:
    """Return the key as a str for messages and for use, and what is wrong with it."""
    if not issubclass(type(key), str):
        return f"<{type_name(key)}>", f"a key must be a str, not a {type_name(key)}"
    name = clean_str(str.__str__(key), _NO_LIMIT)
    return name, None if name.strip() else "a key must not be blank"


def _value_text(key: str, value: object) -> tuple[str | None, str | None]:
    """Return the value as text, None for None, and what is wrong with it."""
    try:
        usable = clean_value(key, value)
    except UnusableValueError as reason:
        return None, str(reason)
    except Exception as fault:  # noqa: BLE001 - an item() or a time zone that fails
        return None, f"a {type_name(value)} gives {type_name(fault)}"
    if type(usable) is tuple:
        return None, "the variable cannot carry a sequence"
    if type(usable) is bool:
        return ("true" if usable else "false"), None
    return (usable if usable is None or type(usable) is str else repr(usable)), None


def _items(attrs: Mapping[str, object] | None) -> list[tuple[Any, Any]]:
    if attrs is None:
        return []
    try:
        return list(attrs.items())
    except Exception as fault:  # noqa: BLE001 - whatever the mapping is, it must not reach the caller
        _dropped(f"<{type_name(attrs)}>", f"its items cannot be read: {type_name(fault)}")
        return []


def _bare(name: str) -> str:
    return re.sub(r"[-_. ]", "", name).casefold()


def _store(environ: MutableMapping[str, str], text: str | None) -> None:
    if text is None:
        environ.pop(VARIABLE, None)
    else:
        environ[VARIABLE] = text


def _dropped(what: str, problem: str) -> None:
    warn_once(("resource attribute", what, problem), "%s: %r is dropped: %s", VARIABLE, what[:80], problem)
