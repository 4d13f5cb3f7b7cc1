"""The examples of docs/testing.md, run by pytest as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.pytest_runs import assert_passed, outcomes, run_suite

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.M | re.S)
(SHOWN,) = re.findall(r"^```text\n(.*?)^```$", PAGE, flags=re.M | re.S)


@pytest.mark.timeout(120)
def test_examples_pass(tmp_path: Path) -> None:
    """Every test of the page passes, in one session."""
    assert len(PYTHON) == 2
    assert_passed(run_suite(tmp_path, "\n".join(PYTHON)), 4)


@pytest.mark.timeout(120)
def test_the_failure_looks_as_shown(tmp_path: Path) -> None:
    """The message that the page shows is that of its first test, with the name of a span changed."""
    done = run_suite(tmp_path, PYTHON[0].replace("          load_batch\n", "          load\n", 1), "-k", "test_step")
    assert outcomes(done) == {"test_step": "failed"}
    assert "".join(f"E   {line}\n" for line in SHOWN.splitlines()) in done.stdout
