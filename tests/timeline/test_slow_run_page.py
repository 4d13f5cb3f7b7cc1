"""``docs/slow-run.md`` as a reader follows it: its commands run as they stand, one after the other."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "slow-run.md").read_text(encoding="utf-8")
NEMO_LENS = [sys.executable, "-m", "nemo_lens.sdk.cli"]


@pytest.mark.timeout(120)
def test_its_commands_lead_to_the_slow_rank(tmp_path: Path) -> None:
    """The demo, the summary that names rank 2 and its phase, and the picture, which is drawn here and not opened."""
    commands = re.findall(r"^\$ nemo-lens (.*)$", PAGE, re.MULTILINE)
    said = {}
    for command in commands:
        if "--with-profiler" in command:
            continue  # needs a run with torch: tests/torchrun has one
        words = [word for word in shlex.split(command) if word != "--open"]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "NEMO_LENS_"))}
        done = subprocess.run(
            [*NEMO_LENS, *words], cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        said[command] = done.stdout
    (summary,) = [text for command, text in said.items() if "--summary" in command]
    assert re.search(r"^Rank 2 .* is slow, in forward: ", summary, re.MULTILINE)
    assert (tmp_path / "slow-run.json").stat().st_size > 0


def test_its_pictures_are_there() -> None:
    """Each picture of the page is in the repository, and small."""
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE)
    assert len(pictures) == 2
    assert [path for path in pictures if not 10_000 < (DOCS / path).stat().st_size < 300_000] == []
