"""``docs/distributed.md``: its program of two stages, run as it stands."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from torchrun_runs import QUIET, needs_torch

from support.symptoms import Lab

pytestmark = [needs_torch, pytest.mark.timeout(120)]

PAGE = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")


def test_the_second_stage_links_to_the_first(tmp_path: Path) -> None:
    """The command of the page starts both stages; the span of the second links to the span that sent."""
    (program,) = re.findall(r"^```py\n(# stages\.py\n.*?)^```$", PAGE, flags=re.M | re.S)
    (command,) = re.findall(r"`torchrun (.*stages\.py)`", PAGE)
    (tmp_path / "stages.py").write_text(program, encoding="utf-8")
    words = [sys.executable, "-m", "torch.distributed.run", *shlex.split(command)[:-1], str(tmp_path / "stages.py")]
    ended = Lab(tmp_path).run(f"import subprocess, sys; sys.exit(subprocess.run({words!r}).returncode)", **QUIET)
    assert ended.code == 0, ended.err
    first, second = sorted(ended.written.spans(), key=lambda span: span["resource"]["nv.dl.rank"])
    assert first["name"] == second["name"] == "forward"
    assert [(link["trace_id"], link["span_id"]) for link in second["links"]] == [(first["trace_id"], first["span_id"])]
