"""The part of the page ``dashboards.md`` that says what the dashboards hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nemo_lens.api import semconv

from .board import Board
from .choices import ONE_RUN, RANKS_OF_THE_RUN, SOME_RUNS
from .prometheus_names import label

BEGIN, END = "<!-- begin of what {command} writes -->", "<!-- end of what {command} writes -->"


def with_tables(text: str, boards: Iterable[Board], command: str) -> str:
    """Return the page with what stands between the two marks written anew.

    Raises:
        ValueError: The page has not each mark once.
    """
    begin, end = (mark.format(command=command) for mark in (BEGIN, END))
    if (text.count(begin), text.count(end)) != (1, 1):
        raise ValueError(f"the page needs each of these lines once: {begin} {end}")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{chr(10).join(_lines(boards))}\n{end}{rest.partition(end)[2]}"


def attributes(boards: Iterable[Board]) -> list[str]:
    """Return the resource attributes that the dashboards ask for, which must be labels of every series."""
    asked = " ".join(text for board in boards for text in _expressions(board))
    words = set(re.findall(r"[a-zA-Z_][a-zA-Z0-9_]*", asked))
    return sorted(name for name in semconv.RESOURCE_FIELDS if label(name) in words)


def _expressions(board: Board) -> Iterator[str]:
    for variable in board.variables:
        yield f"{variable.selector} {label(variable.attribute)}"
    for row in board.rows:
        for panel in row.panels:
            yield from (query.expression for query in panel.queries)


def _lines(boards: Iterable[Board]) -> Iterator[str]:
    boards = tuple(boards)
    yield from (
        "",
        "## Resource attributes that must be labels",
        "",
        "```yaml",
        "otlp:",
        "  promote_resource_attributes:",
    )
    yield from (f"    - {name}" for name in attributes(boards))
    yield "```"
    for board in boards:
        yield from ("", f"## {board.title.partition(': ')[2].capitalize()}", "", board.about, "")
        yield f"`dashboards/{file_name(board)}`, at `/d/{board.uid}`."
        for row in board.rows:
            yield from ("", f"### {row.title}", "", row.question, "", "| panel | how to read it | what then | asks |")
            yield "|---|---|---|---|"
            for panel in row.panels:
                asked = "<br>".join(_code(query.expression) for query in panel.queries)
                yield f"| {panel.title} | {panel.says} | {panel.next_step} | {asked} |"


def file_name(board: Board) -> str:
    """Return the name of the file of a dashboard."""
    return f"{board.uid.removeprefix('nemo-lens-')}.json"


def _code(expression: str) -> str:
    for scope in (RANKS_OF_THE_RUN, ONE_RUN, SOME_RUNS):
        expression = expression.replace(",".join(scope.matchers), "…")
    return f"`{expression}`"
