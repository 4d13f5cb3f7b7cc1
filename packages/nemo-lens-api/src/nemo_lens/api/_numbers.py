"""The numbers that can be recorded, taken from whatever holds one."""

from __future__ import annotations

from nemo_lens.api._values import (
    INT64_MAX,
    INT64_MIN,
    OnDeviceError,
    UnusableValueError,
    type_module,
    type_name,
    unwrap,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Number types of the standard library that are no int or float, and their modules: loading those costs more.
_CONVERTIBLE = {"Decimal": "decimal", "Fraction": "fractions"}


def number(value: Any) -> int | float:
    """Return the number that a value is, or holds: int, float, bool as 0 or 1, Decimal, Fraction, an enum member's
    value, a numpy scalar, a CPU tensor of no dimension. Beyond 64 bits an int becomes a float, which is what OTLP has.

    Raises:
        OnDeviceError: for a tensor on a device.
        UnusableValueError: for anything else, saying what it is.
        Exception: whatever the ``item()`` of a value raises.
    """
    value = unwrap(value)
    kind = type(value)
    if issubclass(kind, int):
        whole = int.__int__(value)
        if INT64_MIN <= whole <= INT64_MAX:
            return whole
        try:
            return float(whole)
        except OverflowError:
            raise UnusableValueError("the int is beyond what a float holds") from None
    if issubclass(kind, float):
        return float.__float__(value)
    name, module = type_name(value), type_module(value)
    if name in _CONVERTIBLE and _CONVERTIBLE[name] == module:
        return float(value)
    raise UnusableValueError(f"a {name} is no number")


def why_unusable(fault: Exception) -> str:
    """Return why ``number`` refused a value: what it raised may come from the value, and its text raise anything."""
    if type(fault) is OnDeviceError:
        return fault.hint
    return str(fault) if type(fault) is UnusableValueError else f"reading it failed with {type_name(fault)}"
