"""What the application says of itself, in the types that known attributes are sent as."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.api.attributes import clean_attributes
from nemo_lens.api.carrier import parse_integer
from nemo_lens.api.semconv import RESOURCE_FIELDS


def caller_attributes(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the resource attributes that an application gave, cleaned.

    Of known keys, a blank is left out, as an unset variable is; a str that writes an integer becomes one where one is
    expected, and a number text where that is. What cannot be converted stays as it is, with one WARNING for its key.

    Args:
        given: attributes by key.
    """
    attributes: dict[str, Any] = {}
    for key, value in clean_attributes(given, ()).items():
        expected = RESOURCE_FIELDS.get(key)
        if expected is None:
            attributes[key] = value
        elif not isinstance(value, str) or value.strip():
            attributes[key] = value if type(value) is expected else _converted(key, value, expected)
    return attributes


def _converted(key: str, value: Any, expected: type) -> Any:
    if expected is str:
        if isinstance(value, (int, float)):
            return str(value)
    elif isinstance(value, (str, float)):
        text = value if isinstance(value, str) else f"{value:.0f}" if value.is_integer() else ""
        number = parse_integer(text)
        if number is not None:
            return number
    warn_once(
        ("caller's attribute", key),
        "resource_attributes: %r is sent as it is, %s: %s is expected",
        key,
        repr(value)[:80],
        "an integer of 64 bits" if expected is int else "a str",
    )
    return value
