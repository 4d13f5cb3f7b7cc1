"""The public API as type checkers see it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is not installed: run `nox -s lint`")

_FOLDER = Path(__file__).parent
_CONFIG = _FOLDER.parents[1] / "pyproject.toml"


def _mypy(*targets: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(_CONFIG), *targets]
    return subprocess.run(command, cwd=_CONFIG.parent, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.timeout(300)
def test_the_public_api_has_the_types_it_promises() -> None:
    """Every call of the contract file has the type it states there, and every wrong call is refused."""
    run = _mypy(str(_FOLDER / "public_api_contract.py"))
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.timeout(300)
def test_installed_wheels_are_typed(tmp_path: Path) -> None:
    """A consumer's own check sees the annotations of the installed packages, not ``Any``."""
    (tmp_path / "consumer.py").write_text(
        "from nemo_lens.api import is_span_group_enabled\n"
        "reveal_type(is_span_group_enabled('step'))\n"
        "is_span_group_enabled(3)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "consumer.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert 'Revealed type is "bool"' in run.stdout.replace("builtins.", ""), run.stdout + run.stderr
    assert 'has incompatible type "int"; expected "str"' in run.stdout
