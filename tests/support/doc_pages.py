"""The pages of the documentation, read as what they are made of: fenced blocks under headings."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = "README.md"

_OPENS = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})\s*(?P<language>[^\s`{]*)")
_HEADING = re.compile(r"^(?P<level>#{1,6}) (?P<title>.+?)\s*#*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: what is between the fences, and where."""

    page: str
    line: int
    language: str
    heading: str
    text: str

    @property
    def opening(self) -> str:
        """The first line that is not blank."""
        return next((line for line in self.text.splitlines() if line.strip()), "")

    @property
    def place(self) -> str:
        """Where an editor finds it."""
        return f"{self.page}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place} ```{self.language} {self.opening!r}"


@cache
def pages() -> tuple[str, ...]:
    """Return the README and every page below ``docs``, relative to the root, in order."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return (README, *found)


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """Return the fenced blocks of a page, in order.

    Args:
        page: its path, relative to the root.

    Raises:
        ValueError: a fence is never closed.
    """
    found: list[Block] = []
    heading, lines = "", iter(enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        if title := _HEADING.match(line):
            heading = title["title"]
        opened = _OPENS.match(line)
        if opened is None:
            continue
        inside: list[str] = []
        for _, content in lines:
            if content.strip() == opened["fence"]:
                break
            inside.append(content)
        else:
            raise ValueError(f"{page}:{number}: the fence is never closed")
        text = (
            textwrap.dedent("".join(f"{each}\n" for each in inside)) if opened["indent"] else "\n".join(inside) + "\n"
        )
        found.append(Block(page, number, opened["language"], heading, text))
    return tuple(found)


def all_blocks(*languages: str, readme: bool = True) -> list[Block]:
    """Return the blocks of all pages, of these languages or of every one."""
    found = [block for page in pages() if readme or page != README for block in blocks(page)]
    return [block for block in found if not languages or block.language in languages]


@cache
def sections(page: str) -> dict[str, str]:
    """Return the text under each heading of a page, down to the next heading of any level."""
    found: dict[str, list[str]] = {}
    fence, inside = "", found.setdefault("", [])
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        opened = _OPENS.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif opened:
            fence = opened["fence"]
        elif title := _HEADING.match(line):
            assert title["title"] not in found, f"{page} has the heading {title['title']!r} twice"
            inside = found.setdefault(title["title"], [])
            continue
        inside.append(line)
    return {title: "\n".join(content) for title, content in found.items()}
