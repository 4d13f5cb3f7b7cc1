"""The string rules: encodable as UTF-8, no longer than the limit."""

from __future__ import annotations

import os

from nemo_lens.api._diagnostics import warn_once

DEFAULT_TEXT_LIMIT = 8192
NO_TEXT_LIMIT = 2**62  # for resources, which the limit of attribute values exempts
LIMIT_VARIABLE = "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"

# Characters a string may have; -1 until it has been read, so that no string passes a check against it before.
limit = -1


def text_limit() -> int:
    """Return how many characters a string may have.

    ``OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT`` wins over the default of 8192. It is read once, when the first string is
    cleaned.
    """
    global limit
    if limit < 0:
        limit = _read_limit()
    return limit


def forget_text_limit() -> None:
    """Read the variable again at the next string, for tests."""
    global limit
    limit = -1


def clean_str(text: str, longest: int) -> str:
    """Return ``text`` cut to ``longest`` characters, with lone surrogates replaced by U+FFFD.

    Args:
        text: an exact ``str``, not of a subclass.
        longest: number of characters to keep.
    """
    if len(text) > longest:
        text = text[:longest]
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16, so that two halves which do belong together become the character they stand for.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _read_limit() -> int:
    given = os.environ.get(LIMIT_VARIABLE, "").strip()
    # Nothing can be longer than 18 digits say, and int() refuses thousands of them.
    if given.isascii() and given.isdigit() and len(given) <= 18:
        return int(given)
    if given:
        warn_once(
            ("text limit", given),
            "%s=%r is ignored: it must be a number of characters, 0 or more; the limit is %d",
            LIMIT_VARIABLE,
            given,
            DEFAULT_TEXT_LIMIT,
        )
    return DEFAULT_TEXT_LIMIT
