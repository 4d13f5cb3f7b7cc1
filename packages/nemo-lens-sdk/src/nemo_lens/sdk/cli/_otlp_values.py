"""Fields of OTLP JSON: what a decoded field must be, and the Python value that it stands for.

Follows the JSON encoding of the OpenTelemetry Protocol 1.x (64-bit integers as strings, ids in hex), and accepts
numbers for the former. Anything else that does not fit is a ``ValueError`` that names the field.
"""

from __future__ import annotations

import re
from typing import Any

_HEX_ID = re.compile(r"[0-9a-fA-F]{16}|[0-9a-fA-F]{32}")
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_DIGITS = 19  # fewer are at most 64 bits in any case


def attributes(raw: object) -> dict[str, object]:
    """Return the values of a list of ``KeyValue`` by their keys."""
    found: dict[str, object] = {}
    if type(raw) is list:
        # A run has millions of these, nearly all of them well-formed text and integers: those first, and what does
        # not fit is looked at again below, where every kind is known and said what is wrong.
        try:
            for item in raw:
                key, held = item["key"], item["value"]
                if "stringValue" in held:
                    value = held["stringValue"]
                    if type(value) is not str:
                        break
                elif "intValue" in held:
                    value = held["intValue"]
                    short = type(value) is str and len(value) < _DIGITS
                    value = int(value) if short else integer(value, "intValue")
                else:
                    value = _value(held)
                if type(key) is not str:
                    break
                found[key] = value
            else:
                return found
        except (TypeError, LookupError, AttributeError, ValueError):
            pass
    return {
        text(item.get("key"), "attributes.key"): _value(object_of(item.get("value"), "attributes.value"))
        for item in objects(raw, "attributes")
    }


def objects(raw: object, what: str) -> list[dict[str, Any]]:
    """Return ``raw`` when it is a list of objects; an absent one is empty."""
    if raw is None:
        return []
    if not isinstance(raw, list) or not all(isinstance(item, dict) for item in raw):
        raise ValueError(f"{what} is not a list of objects")
    return raw


def object_of(raw: object, what: str) -> dict[str, Any]:
    """Return ``raw`` when it is an object; an absent one is empty."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is not an object")
    return raw


def text(raw: object, what: str) -> str:
    """Return ``raw`` when it is a string; an absent one is empty."""
    if raw is None:
        return ""
    if not isinstance(raw, str):
        raise ValueError(f"{what} is not a string")
    return raw


def identifier(raw: object, what: str) -> str:
    """Return a trace or span id in lower case; one of zeros alone means none and is empty."""
    if type(raw) is str and raw.islower():
        return raw
    # Kept as it is when it is not hex: ids are only compared, and base64 ones (protobuf's own JSON) compare as well.
    given = text(raw, what)
    if not given.strip("0"):
        return ""
    return given.lower() if _HEX_ID.fullmatch(given) else given


def integer(raw: object, what: str) -> int:
    """Return a whole number of at most 64 bits, given as text or number; an absent one is 0."""
    if raw is None:
        return 0
    try:
        if isinstance(raw, (str, int)):
            number = int(raw)
            if _LEAST <= number <= _MOST:
                return number
    except ValueError:
        pass
    raise ValueError(f"{what} is not an integer: {str(raw)[:40]!r}")


def real(raw: object, what: str) -> float:
    """Return a floating-point number, given as number or text: NaN and the infinities are text."""
    try:
        if isinstance(raw, (str, int, float)):
            return float(raw)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{what} is {str(raw)[:40]!r}")


def _value(raw: dict[str, Any]) -> object:
    if "intValue" in raw:
        return integer(raw["intValue"], "intValue")
    if "doubleValue" in raw:
        return real(raw["doubleValue"], "doubleValue")
    if "arrayValue" in raw:
        values = objects(object_of(raw["arrayValue"], "arrayValue").get("values"), "arrayValue.values")
        return tuple(_value(item) for item in values)
    if "kvlistValue" in raw:
        return attributes(object_of(raw["kvlistValue"], "kvlistValue").get("values"))
    for kind, value in raw.items():  # stringValue, boolValue, bytesValue, or newer than this
        if not isinstance(value, (str, bool)):
            raise ValueError(f"{kind} is {str(value)[:40]!r}")
        return value
    return None
