"""Span trees as text that a test compares: one span a line, children indented below their parent."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING

from nemo_lens.sdk.cli._forest import Forest
from nemo_lens.sdk.cli._otlp_spans import STATUS_ERROR
from nemo_lens.sdk.cli._terminal import printable
from nemo_lens.sdk.testing.spans import as_read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from nemo_lens.sdk.cli._otlp_spans import Span
    from nemo_lens.sdk.testing.spans import RecordedSpan

_INDENT = "  "
# Depth and text of each span, a parent before its children.
Lines = list[tuple[int, str]]


def tree_of(spans: Iterable[RecordedSpan], attributes: bool | Collection[str]) -> Lines:
    """Return the trees of all traces, roots and siblings in the order they started.

    Args:
        spans: the spans; one whose parent is not among them is a root.
        attributes: True to show all attributes, or the names of those to show.
    """
    forest = Forest(as_read(span) for span in spans)
    return [(place.depth, _line(node.span, attributes)) for trace in forest.traces for node, place in trace.walk()]


def expected_tree(text: str) -> Lines:
    """Read what ``text_of`` writes, indented in any way that shows who is whose child; blank lines mean nothing.

    Raises:
        ValueError: a line whose indentation belongs to no level above it.
    """
    lines: Lines = []
    widths: list[int] = []
    for line in filter(str.strip, text.expandtabs().splitlines()):
        width = len(line) - len(line.lstrip())
        left = False
        while widths and width < widths[-1]:
            widths.pop()
            left = True
        if not widths or width > widths[-1]:
            if left:
                raise ValueError(f"expected tree: {line.strip()!r} is indented like no line above it")
            widths.append(width)
        lines.append((len(widths) - 1, line.strip()))
    return lines


def text_of(lines: Lines) -> str:
    """Return the tree as text, two blanks a level."""
    return "\n".join(f"{_INDENT * depth}{text}" for depth, text in lines)


def in_any_order(lines: Lines) -> Lines:
    """Return the tree with siblings in the order of their text, for comparison."""
    return [line for block in sorted(_blocks(lines)) for line in block]


def difference(expected: Lines, recorded: Lines) -> str:
    """Return both trees in one, ``-`` before what is only expected and ``+`` before what is only recorded."""
    before, after = text_of(expected).splitlines(), text_of(recorded).splitlines()
    shown: list[str] = []
    for _, start, end, other_start, other_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if before[start:end] == after[other_start:other_end]:
            shown += (f"    {line}" for line in before[start:end])
        else:
            shown += (f"  - {line}" for line in before[start:end])
            shown += (f"  + {line}" for line in after[other_start:other_end])
    return "\n".join(shown)


def _line(span: Span, attributes: bool | Collection[str]) -> str:
    if attributes is True:
        names: Collection[str] = sorted(span.attributes)
    else:
        names = [name for name in attributes or () if name in span.attributes]
    parts = [span.name or "(no name)", *(["ERROR"] if span.status_code == STATUS_ERROR else [])]
    return printable(" ".join([*parts, *(f"{name}={span.attributes[name]!r}" for name in names)]))


def _blocks(lines: Lines) -> Iterator[Lines]:
    """Yield each root with all below it, its children in order of their text."""
    starts = [number for number, (depth, _) in enumerate(lines) if depth == lines[0][0]]
    for start, end in pairwise([*starts, len(lines)]):
        yield [lines[start], *in_any_order(lines[start + 1 : end])]
