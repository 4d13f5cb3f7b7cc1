"""Prints what the benchmarks measured, beside what was promised."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

_LINES: list[str] = []


@pytest.fixture
def report() -> Callable[..., None]:
    """Note a figure for the table at the end."""

    def note(budget, figure: float, detail: str = "") -> None:  # type: ignore[no-untyped-def]
        verdict = "" if figure <= budget.target else " over target" if figure <= budget.limit else " OVER LIMIT"
        _LINES.append(
            f"{budget.what:<48} {figure:>7.2f}  target {budget.target:<5} limit {budget.limit:<5}{verdict}"
            f"  against {budget.against}{'; ' + detail if detail else ''}"
        )

    return note


def pytest_terminal_summary(terminalreporter) -> None:  # type: ignore[no-untyped-def]
    """Print the table."""
    if _LINES:
        terminalreporter.section("budgets")
        for line in _LINES:
            terminalreporter.write_line(line)
