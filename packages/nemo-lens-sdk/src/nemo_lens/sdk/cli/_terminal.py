"""What one output stream can show: colour, box-drawing characters, width."""

from __future__ import annotations

import os
import shutil
import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

_COLOURS = {"bold": "1", "dim": "2", "red": "1;31", "yellow": "33", "blue": "34", "green": "32"}

# Sign -> what is drawn where the stream's encoding has it, and elsewhere.
_SIGNS = {
    "branch": ("├─ ", "|- "),
    "last": ("└─ ", "`- "),
    "pass": ("│  ", "|  "),
    "arrow": ("→", "->"),
    "ellipsis": ("…", "..."),
    "micro": ("µ", "u"),
    "good": ("✓", "+"),
    "bad": ("✗", "x"),
}


class Terminal:
    """Writes lines to ``out`` in the way that ``out`` can show.

    Colour needs a terminal and no ``NO_COLOR`` (https://no-color.org). ``width`` is in columns, None where lines need
    no limit: not a terminal and no ``COLUMNS``.
    """

    def __init__(self, out: TextIO, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._out = out
        self._encoding = getattr(out, "encoding", None) or "utf-8"
        self.is_tty = out.isatty()
        self.colour = self.is_tty and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        self._column = 0 if _can_encode("".join(nice for nice, _ in _SIGNS.values()), self._encoding) else 1
        columns = environ.get("COLUMNS", "")
        self.width: int | None = None
        if columns.isdecimal() and int(columns) > 0:
            self.width = int(columns)
        elif self.is_tty:
            self.width = shutil.get_terminal_size().columns

    def sign(self, name: str) -> str:
        """Return the sign of this name as the stream can show it."""
        return _SIGNS[name][self._column]

    def paint(self, text: str, colour: str) -> str:
        """Return ``text`` in this colour, or as it is where there is none."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.colour and text else text

    def fit(self, text: str, width: int) -> str:
        """Return ``text`` in at most ``width`` columns, its end replaced by an ellipsis when it is longer."""
        if columns_of(text) <= width:
            return text
        ellipsis = self.sign("ellipsis")
        room = width - len(ellipsis)
        kept = []
        for char in text:
            room -= columns_of(char)
            if room < 0:
                break
            kept.append(char)
        return "".join(kept) + ellipsis

    def line(self, text: str = "") -> None:
        """Write one line; what the stream's encoding lacks is written as an escape sequence."""
        self._out.write(text.encode(self._encoding, "backslashreplace").decode(self._encoding) + "\n")


def printable(text: object) -> str:
    """Return ``text`` on one line, control characters (and with them a terminal's commands) made visible."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``1 span``, ``2 spans``; ``many`` is the plural where it is not ``one`` with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def columns_of(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
