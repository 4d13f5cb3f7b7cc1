"""The page on costs: its limits are those of the benchmarks, its figures those that its program measures."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")


class Limit(NamedTuple):
    """A budget as the benchmarks have it; None for what is computed there."""

    what: str
    against: str
    target: float | None
    limit: float


def _table(name: str) -> list[list[str]]:
    (text,) = re.findall(rf"<!-- table {name} -->\n(.*?)<!-- end -->", PAGE, flags=re.S)
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def _budgets() -> Iterator[Limit]:
    """Yield every budget that is made in a benchmark."""
    for path in sorted((ROOT / "tests" / "benchmarks").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Budget":
                what, against, target, limit = node.args
                target = None if isinstance(target, ast.Name) and target.id != "inf" else _value(target)
                yield Limit(_text(what), _text(against), target, _value(limit))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
    return str(ast.literal_eval(node))


def _value(node: ast.expr) -> float:
    return float(eval(compile(ast.Expression(node), "budget", "eval"), {"inf": inf, "round": round}))


def _number(cell: str) -> float:
    return inf if cell == "none" else float(cell)


def test_the_limits_are_those_of_the_benchmarks() -> None:
    """The table names every budget, with its target and its limit, and no other."""
    budgets = {budget.what: budget for budget in _budgets()}
    assert len(budgets) > 15
    rows = {row[0]: row for row in _table("limits")}
    assert set(rows) == set(budgets)
    for what, against, target, limit, _ in rows.values():
        budget = budgets[what]
        assert against == budget.against
        assert _number(limit) == budget.limit, what
        if budget.target is not None:
            assert _number(target) == budget.target, what


def test_what_was_measured_keeps_the_limits() -> None:
    """The ratio that the page quotes is within the limit beside it."""
    for what, _, _, limit, measured in _table("limits"):
        quoted = [float(figure) for figure in re.findall(r"^[\d.]+|(?<= to )[\d.]+", measured.partition(":")[0])]
        assert quoted, what
        assert max(quoted) <= _number(limit), what


@pytest.fixture(scope="module")
def cost() -> Any:
    """The program that measures the second table."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("measure_cost")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.mark.timeout(120)
def test_the_figures_of_a_process_can_be_measured(cost: Any) -> None:
    """The page has each figure of the program; what a waiting span takes, which no neighbour changes, is as it says."""
    kept = dict(_table("process"))
    assert list(kept) == [figure.what for figure in cost.FIGURES]
    with cost.discarding_sink() as port, ThreadPoolExecutor(2) as pool:
        measured = pool.map(lambda figure: cost.measure(figure, port, rounds=1), cost.FIGURES)
        for figure, now in zip(cost.FIGURES, measured, strict=True):
            value, unit = kept[figure.what].split()
            assert unit == figure.unit
            assert now > 0, figure.what
            if unit == "bytes":
                assert 0.7 < now / float(value) < 1.4, f"{figure.what}: {now:.0f} bytes"
