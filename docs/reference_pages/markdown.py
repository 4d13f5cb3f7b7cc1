"""Paragraphs and tables in Markdown, as all generated pages have them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

COMMAND = "python docs/generate_reference.py"
NOTICE = f"<!-- Written by {COMMAND} from the code; a test holds the two together. -->"

_WIDTH = 120


def title(text: str) -> Iterator[str]:
    """Return the head of a page: its title, and where its text comes from."""
    yield from (f"# {text}", "", NOTICE)


def section(text: str, level: int = 2) -> Iterator[str]:
    """Return a heading."""
    yield from ("", f"{'#' * level} {text}")


def paragraph(text: str) -> Iterator[str]:
    """Return a paragraph, wrapped."""
    yield ""
    yield from textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Return a table, with the line before it."""
    yield ""
    yield from table_head(*head)
    yield from (table_row(*cells) for cells in rows)


def table_head(*titles: str) -> Iterator[str]:
    """Return the two lines that begin a table."""
    yield table_row(*titles)
    yield f"|{'---|' * len(titles)}"


def table_row(*cells: str) -> str:
    """Return a line of a table. What stands in a cell is Markdown; only ``|`` is escaped."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def code(text: str) -> str:
    """Return ``text`` as code; nothing for nothing."""
    return f"`{text}`" if text else ""


def listed(names: Iterable[str]) -> str:
    """Return names as code, with commas."""
    return ", ".join(code(name) for name in names)


def from_docstring(text: str) -> str:
    """Return what a docstring says as Markdown: code has one backtick there."""
    return text.replace("``", "`")
