"""Compares output that a page shows with what was printed."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_HEX = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")


def unseen_lines(shown: str, printed: str) -> list[str]:
    """Return the lines of ``shown`` that were not printed in that order.

    Numbers, ids and the width of blanks may differ. A line ``...`` stands for any number of lines, and ``...`` in a
    line for any text.

    Args:
        shown: what the page shows.
        printed: what the commands printed.
    """
    there = [_plain(line) for line in printed.splitlines()]
    at, unseen = 0, []
    for line in shown.splitlines():
        wanted = _plain(line)
        if wanted in ("", "..."):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in wanted.split("...")))
        found = next((number for number in range(at, len(there)) if pattern.fullmatch(there[number])), None)
        if found is None:
            unseen.append(line)
        else:
            at = found + 1
    return unseen


def _plain(line: str) -> str:
    return " ".join(_NUMBER.sub("N", _HEX.sub("H", line)).split())
