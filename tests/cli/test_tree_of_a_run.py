"""``nemo-lens tree`` over what the file exporter wrote for a real program."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import contextlib
from nemo_lens.api import NemoLensConfig, get_meter, setup_telemetry, span_cm

path = "spans-{signal}.jsonl%s"
config = NemoLensConfig(enabled=True, exporter="file", file_path=path, service_name="job", run_id="r1")
handle = setup_telemetry(config, resource_attributes={"nv.dl.rank": 4, "nv.dl.role": "trainer"})
get_meter("m").create_counter("c").add(1)
still_open = span_cm("open at exit")
still_open.__enter__()
for fault in (ValueError("bad \\x1b[31m value"), KeyboardInterrupt()):
    with contextlib.suppress(BaseException), span_cm(type(fault).__name__):
        raise fault
    handle.force_flush()
"""


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_run_is_read_back_with_its_marks(suffix: str, tmp_path: Path) -> None:
    """Error, interruption and the span that was open at exit, plain and in a gzip file of several members."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "NEMO_LENS_"))}
    environ["COLUMNS"] = "200"  # no line wraps, however long the durations are
    subprocess.run([sys.executable, "-c", PROGRAM % suffix], cwd=tmp_path, env=environ, check=True, timeout=30)
    if suffix:
        assert (tmp_path / "spans-traces.jsonl.gz").read_bytes().count(b"\x1f\x8b\x08") == 3
        assert gzip.decompress((tmp_path / "spans-traces.jsonl.gz").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "nemo_lens.sdk.cli", "tree", "."],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    lines = [
        re.sub(r"[0-9.]+ (µs|ms|s)\b", "T", re.sub(r"pid \d+", "pid N", text)) for text in done.stdout.splitlines()
    ]
    assert re.fullmatch(r"trace [0-9a-f]{32}  job, run r1, 3 spans, 1 process, T, 1 error", lines[0])
    assert [re.sub(" +", " ", text) for text in lines[1:]] == [
        "open at exit T rank 4 trainer pid N truncated (exit)",
        r"├─ ValueError T rank 4 trainer pid N ERROR ValueError: bad \x1b[31m value",
        "└─ KeyboardInterrupt T rank 4 trainer pid N interrupted by KeyboardInterrupt",
    ]
    assert re.fullmatch(r"nemo-lens tree: skipped \d+ metric lines?\n", done.stderr)
