"""SLURM's node lists, ``gpu-a[1-2],rack[1-2]-n[01-10,12]``: whether one names a host.

Nothing is expanded: a list of a few characters can name more hosts than there is memory.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    # What stands in an expression in a row: text, or the ranges of one pair of brackets (first, last, least digits).
    Ranges = list[tuple[int, int, int]]
    Piece = str | Ranges

# More digits than any SLURM numbers nodes with, and few enough for a number of 64 bits.
_MOST_DIGITS = 18

_TOKEN = re.compile(r"(?P<text>[A-Za-z0-9._-]+)|\[(?P<ranges>[0-9,-]+)\]|,")
_RANGE = re.compile(rf"([0-9]{{1,{_MOST_DIGITS}}})(?:-([0-9]{{1,{_MOST_DIGITS}}}))?")


def hostlist_contains(hostlist: str, host: str) -> bool:
    """Say whether a node list of SLURM names a host.

    As ``scontrol show hostnames`` expands it: brackets hold numbers and ranges, there may be several pairs, and the
    digits of a range's start are the least that its numbers have (``[08-10]`` is 08, 09, 10; ``[8-10]`` is 8, 9, 10).

    Args:
        hostlist: the list, as in ``SLURM_JOB_NODELIST``.
        host: one node's name, as in ``SLURMD_NODENAME``.

    Raises:
        ValueError: when the list cannot be read to its end, whether or not the host came before.
    """
    answers = [_names(expression, host) for expression in _expressions(hostlist)]  # the list is read to its end
    return any(answers)


def _expressions(hostlist: str) -> Iterator[list[Piece]]:
    expression: list[Piece] = []
    at = 0
    while at < len(hostlist):
        token = _TOKEN.match(hostlist, at)
        if token is None:
            raise ValueError(f"node list {hostlist[:80]!r}: what begins with {hostlist[at : at + 20]!r} cannot be read")
        if token["text"]:
            expression.append(token["text"])
        elif token["ranges"]:
            expression.append([_range(text) for text in token["ranges"].split(",")])
        elif expression:
            yield expression
            expression = []
        at = token.end()
    if expression:
        yield expression


def _range(text: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"node list: {text[:80]!r} is no range, such as 7 or 01-10")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"node list: the range {text!r} ends before it begins")
    return first, last, len(match[1])


def _names(expression: list[Piece], host: str) -> bool:
    # Where in the host's name the pieces so far can end: two brackets in a row may share digits in more than one way.
    ends = {0}
    for piece in expression:
        if isinstance(piece, str):
            ends = {end + len(piece) for end in ends if host.startswith(piece, end)}
        else:
            ends = {
                stop
                for end in ends
                for stop in range(end + 1, min(end + _MOST_DIGITS, len(host)) + 1)
                if _is_in(piece, host[end:stop])
            }
        if not ends:
            return False
    return len(host) in ends


def _is_in(ranges: Ranges, digits: str) -> bool:
    if not (digits.isascii() and digits.isdigit()):
        return False
    number = int(digits)
    own_digits = len(str(number))
    return any(first <= number <= last and len(digits) == max(own_digits, least) for first, last, least in ranges)
