"""A timeline read by Holistic Trace Analysis, which people use on traces of the PyTorch profiler."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROFILES = Path(__file__).parents[1] / "timeline" / "profiles"
PROBE = """
import collections, json, sys
from hta.common.trace import Trace
trace = Trace({0: sys.argv[1]}, "")
trace.parse_traces(use_multiprocessing=False)
names = trace.symbol_table.get_sym_table()
print(json.dumps(collections.Counter(names[name] for name in trace.get_trace(0)["name"])))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("hta") is None and not os.environ.get("CI"),
    reason="Holistic Trace Analysis is not installed: run `nox -s browser`",
)
def test_it_finds_spans_and_operators(tmp_path: Path) -> None:
    """Spans and operators of both ranks are events there, as often as they were recorded."""
    trace = tmp_path / "timeline.json.gz"
    profiles = [str(PROFILES / f"ddp-rank{rank}.pt.trace.json.gz") for rank in (0, 1)]
    files = [str(PROFILES / "ddp-spans.jsonl"), "--with-profiler", *profiles]
    command = [sys.executable, "-m", "nemo_lens.sdk.cli", "timeline", "--quiet", "-o", str(trace), *files]
    subprocess.run(command, check=True, timeout=60)
    read = subprocess.run(
        [sys.executable, "-c", PROBE, str(trace)], capture_output=True, text=True, check=True, timeout=60
    )
    counts = json.loads(read.stdout.splitlines()[-1])
    spans = (PROFILES / "ddp-spans.jsonl").read_text(encoding="utf-8")
    for name in ("epoch", "step", "forward"):
        assert counts[name] == spans.count(f'"name":"{name}"') > 0
    assert counts["aten::linear"] > 0
