"""The table of attribute values: what is kept, what is converted to what, what is dropped.

Nothing the user wrote is called. Types are compared by ``issubclass(type(value), base)``, because ``isinstance`` reads
``value.__class__``, and converted by the base type's own method, called unbound. The exceptions are the ``item()`` of
a numpy or torch scalar and the UTC offset of a time zone.
"""

from __future__ import annotations

import codecs
from collections import deque
from datetime import date, datetime
from enum import Enum
from itertools import islice
from pathlib import PurePath
from uuid import UUID

from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.api._text import clean_str, text_limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

Scalar = bool | int | float | str
AttributeValue = Scalar | tuple[bool, ...] | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

# One attribute must not grow past what a receiver takes in one message, with every other span in it.
MAX_ITEMS = 8192
MAX_CHARACTERS = 262_144

# An enum whose value is an enum, an array of one object that is an array: nobody means more than this.
_MAX_NESTING = 4

# Decimal text of more bits costs quadratic time and may be refused (sys.set_int_max_str_digits): hexadecimal then.
_MAX_DECIMAL_BITS = 2048

_END = object()

# Module to type name. No subclass: the item() of a distributed tensor is a collective.
_TENSORS = {"torch": "Tensor", "torch.nn.parameter": "Parameter"}

# The slots of ``type`` itself: a metaclass cannot intercept them.
_module_of = type.__dict__["__module__"].__get__
_name_of = type.__dict__["__name__"].__get__


class UnusableValueError(Exception):
    """A value that cannot be sent; the message says why."""


class OnDeviceError(UnusableValueError):
    """A tensor on a device, which is not read."""

    hint = (
        "its tensor is on a device, and reading it would make the job wait for that device; read it where the job "
        "waits anyway and pass the number"
    )

    def __init__(self) -> None:
        super().__init__("a tensor on a device is not read")


def clean_value(key: str, value: object, longest: int | None = None) -> AttributeValue | None:
    """Convert a value to what is sent.

    Args:
        key: its key, for messages.
        value: anything.
        longest: most characters of a string; default the limit of attribute values.

    Returns:
        A bool, an int of 64 bits, a float, a str or a tuple of one of these; None for None.

    Raises:
        UnusableValueError: when it is none of what the table knows.
        Exception: whatever the ``item()`` or the time zone of a value raises.
    """
    if longest is None:
        longest = text_limit()
    value = _unwrap(key, value)
    kind = type(value)
    if kind is not str:
        for base, iterate in _SEQUENCES:
            if issubclass(kind, base):
                return _clean_sequence(key, iterate(value), longest)
    plain = _plain(key, value, longest)
    if type(plain) is int and not INT64_MIN <= plain <= INT64_MAX:
        return _integer_text(plain, longest)
    return plain


def type_name(value: object) -> str:
    """Return the name of a value's type."""
    return str.__str__(_name_of(type(value)))


def type_module(value: object) -> object:
    """Return the name of the module that a value's type says it is from; a class may say anything."""
    return _module_of(type(value))


def unwrap(value: Any) -> Any:
    """Return what an enum member, a numpy scalar or a tensor of no dimension stands for, other values as they are.

    Raises:
        OnDeviceError: for a tensor that is not in the memory of this process's CPU.
        UnusableValueError: for an array or tensor with dimensions.
        Exception: whatever the ``item()`` of a value raises.
    """
    for _ in range(_MAX_NESTING):
        kind = type(value)
        if kind is str or kind is int or kind is float or kind is bool:
            return value
        if issubclass(kind, Enum):
            value = object.__getattribute__(value, "_value_")
            continue
        module = _module_of(kind)
        if type(module) is not str:
            return value
        if module == "numpy":
            if value.ndim:
                raise UnusableValueError("an array is not one value")
        elif _TENSORS.get(module) == type_name(value):
            if value.device.type != "cpu":
                raise OnDeviceError
            if value.dim():
                raise UnusableValueError("a tensor with dimensions is not one value")
        else:
            return value
        item = value.item()
        # The item() of a longdouble is itself.
        value = float(value) if type(item) is kind and value.dtype.kind == "f" else item
    raise UnusableValueError("a wrapper inside a wrapper inside a wrapper")


def _unwrap(key: str, value: Any) -> Any:
    try:
        return unwrap(value)
    except OnDeviceError:
        warn_once("tensor on a device", "attribute %r is dropped: %s. Said once", key, OnDeviceError.hint)
        raise


def _plain(key: str, value: Any, longest: int) -> Scalar | None:
    """Convert to one bool, int of any size, float or str; None for None."""
    kind = type(value)
    if value is None or kind is int or kind is float or kind is bool:
        return value  # type: ignore[no-any-return]
    for base, convert in _CONVERSIONS:
        if issubclass(kind, base):
            plain = convert(value)
            break
    else:
        plain = _decoded(value, longest)
    if type(plain) is not str:
        return plain
    if len(plain) > longest:
        debug_once(("attribute cut", key), "attribute %r is cut to %d characters", key, longest)
    return clean_str(plain, longest)


def _decoded(value: Any, longest: int) -> str:
    for base in (bytes, bytearray):
        if issubclass(type(value), base):
            # No UTF-8 character has more than four bytes; what is past the limit is not even looked at.
            head = base.__getitem__(value, slice(4 * longest + 4))
            try:
                return codecs.utf_8_decode(head, "strict", base.__len__(value) == len(head))[0]
            except UnicodeDecodeError:
                raise UnusableValueError("its bytes are no UTF-8") from None
    raise UnusableValueError(f"a {type_name(value)} is no attribute value")


def _clean_sequence(key: str, items: Iterable[object], longest: int) -> AttributeValue:
    plain: list[Any] = []
    characters = 0
    items = iter(items)
    for item in islice(items, MAX_ITEMS):
        kind = type(item)
        if kind is not float and kind is not int and kind is not bool:
            item = _plain(key, _unwrap(key, item), longest)
            if item is None:
                continue
            if type(item) is str:
                characters += len(item)
                if characters > MAX_CHARACTERS:
                    break
        plain.append(item)
    else:
        if next(items, _END) is _END:
            return _homogeneous(plain, longest)
    debug_once(("attribute cut", key), "attribute %r is cut to its first %d items", key, len(plain))
    return _homogeneous(plain, longest)


def _homogeneous(plain: list[Any], longest: int) -> AttributeValue:
    kinds = {type(item) for item in plain}
    if kinds == {int, float}:
        try:
            return tuple([float(item) for item in plain])
        except OverflowError:
            return tuple(
                [_integer_text(item, longest) if type(item) is int else repr(item)[:longest] for item in plain]
            )
    if len(kinds) > 1:
        raise UnusableValueError(f"a sequence of {' and '.join(sorted(kind.__name__ for kind in kinds))}")
    if kinds == {int} and (min(plain) < INT64_MIN or max(plain) > INT64_MAX):
        return tuple([_integer_text(item, longest) for item in plain])
    return tuple(plain)


def _integer_text(value: int, longest: int) -> str:
    text = int.__repr__(value) if value.bit_length() <= _MAX_DECIMAL_BITS else hex(value)
    return text[:longest]


_SEQUENCES: tuple[tuple[type, Callable[[Any], Iterable[object]]], ...] = (
    (list, list.__iter__),
    (tuple, tuple.__iter__),
    (deque, deque.__iter__),
    (range, range.__iter__),
)

# The first match wins.
_CONVERSIONS: tuple[tuple[type, Callable[[Any], Scalar]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (PurePath, PurePath.__str__),
    (UUID, UUID.__str__),
    (datetime, datetime.isoformat),
    (date, date.isoformat),
)
