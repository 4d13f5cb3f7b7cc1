"""The page on the design: the files and tests that it names are there, its budgets are those that are held."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
COST = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
# The head of the table of budgets; that of cost.md has one column more.
HEAD = "| what | against | target | limit |"
PLACES = (ROOT, *ROOT.glob("packages/*/src"))


def test_every_file_that_is_named_is_there() -> None:
    """A path names a file, a folder or at least one match; a bare name of a module lies beside a path of its line."""
    found = list(_named(PAGE))
    assert len(found) > 25
    assert [name for name in found if not _exists(name)] == []


def test_a_name_that_is_gone_is_found() -> None:
    """The test above sees a path, a pattern and a bare name that nothing answers to."""
    line = "`nemo_lens/sdk/gone.py` `tests/sdk/test_gone_*.py` `nemo_lens/sdk/pipe.py`, `gone.py`, `fork.py`"
    assert [name for name in _named(line) if not _exists(name)] == [
        "nemo_lens/sdk/gone.py",
        "tests/sdk/test_gone_*.py",
        "nemo_lens/sdk/gone.py",
    ]


def test_the_budgets_are_those_of_the_benchmarks() -> None:
    """Target and limit of each row stand in the table of ``cost.md`` too, which is compared with the benchmarks."""
    held = {tuple(round(figure, 2) for figure in _figures(row)[:2]) for row in _rows(COST)}
    rows = [_figures(row) for row in _rows(PAGE)]
    assert len(rows) >= 8
    assert [row[:2] for row in rows if tuple(row[:2]) not in held] == []


def _named(text: str) -> list[str]:
    """Return the paths that a text names; the folder of a bare file name is that of the path before it in its cell."""
    found = []
    for cell in re.split(r"[|\n]", text):
        folder = PurePosixPath()
        for name in re.findall(r"`([^`\s]+)`", cell):
            if re.match(r"(nemo_lens|tests|docs)/", name):
                folder = PurePosixPath(name).parent
                found.append(name)
            elif re.fullmatch(r"\.?\w+\.(py|md)|\.importlinter", name) and name != "__init__.py":
                found.append(str(folder / name))
    return found


def _exists(name: str) -> bool:
    return any(next(place.glob(name), None) for place in PLACES)


def _rows(page: str) -> list[list[str]]:
    """Return the cells of each row of the table of budgets, from the target on."""
    lines = page.partition(HEAD)[2].partition("\n\n")[0].splitlines()[2:]
    return [line.strip("| ").split(" | ")[2:] for line in lines]


def _figures(cells: list[str]) -> list[float]:
    return [float(figure) for cell in cells for figure in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", cell)[:1]]
