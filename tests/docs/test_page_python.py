"""The Python of the pages, run as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.checkouts import environment
from support.doc_claims import is_tabled, shown_after
from support.doc_pages import Block, all_blocks
from support.shown_output import unseen_lines

BLOCKS = [block for block in all_blocks("python", readme=False) if not is_tabled(block)]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_it_runs_by_itself(tmp_path: Path, block: Block) -> None:
    """Each block runs by itself with telemetry on, set up here unless it does that itself, and prints what is shown."""
    code = block.text
    if "setup_telemetry(" not in code:
        code = f"from nemo_lens.api import setup_telemetry\nsetup_telemetry()\n{code}"
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "block.py"],
        cwd=tmp_path,
        env=environment(tmp_path, {"NEMO_LENS_ENABLED": "1", "NEMO_LENS_EXPORTER": "console"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}"
    shown = shown_after(block)
    assert shown is None or unseen_lines(shown.text, done.stdout) == [], (
        f"{shown} is not what was printed\n{done.stdout}"
    )
