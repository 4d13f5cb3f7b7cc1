"""The budgets of ``nemo-lens timeline``: its time against reading the same files, and a memory that does not grow.

``NEMO_LENS_BENCH_SPANS=1000000`` measures a run of that size, from 64 files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from _timing import Budget, settled

from support.span_files import SpanFiles, write_span_files

TIME = Budget("timeline, processor time", "json.loads of every line", 10.0, 15.0)
# Absolute: an interpreter, SQLite's cache, and the line of input that is being read.
MEMORY = Budget("timeline, peak memory in MiB", "any number of spans", 80, 128)
GROWTH = Budget("timeline, peak memory more in MiB", "a tenth of the spans", 24, 40)
SUMMARY = Budget("timeline --summary, memory a span in bytes", "ten times the spans", 120, 200)

_RANKS = 64
_SPANS = int(os.environ.get("NEMO_LENS_BENCH_SPANS", "100000"))

# Each prints the processor time and the wall time of what follows, in seconds, and the peak memory in KiB: the
# kernel's own figure, as ru_maxrss begins with what the process had that started this one.
_MEASURED = """
import json, sys, time
wall, processor = time.perf_counter(), time.process_time()
{work}
seconds = time.process_time() - processor, time.perf_counter() - wall
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(json.dumps([*seconds, int(peak)]))
"""
_PLAIN = _MEASURED.format(
    work="""
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        for line in file:
            json.loads(line)
"""
)
_TIMELINE = _MEASURED.format(
    work="""
from nemo_lens.sdk.cli import main
assert main(["timeline", "--quiet", "-o", *sys.argv[1:]]) == 0
"""
)
_SUMMARY = _MEASURED.format(
    work="""
import contextlib, io
from nemo_lens.sdk.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["timeline", "--quiet", "--summary", *sys.argv[1:]]) == 0
"""
)


class Measured(NamedTuple):
    """What a process took."""

    processor_s: float
    wall_s: float
    peak_mib: float


def _measure(program: str, *arguments: object) -> Measured:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    processor, wall, peak = json.loads(done.stdout)
    return Measured(processor, wall, peak / 1024)


def _files(folder: Path, spans: int) -> SpanFiles:
    folder.mkdir()
    return write_span_files(folder, _RANKS, spans)


@pytest.mark.timeout(1800)
def test_a_run_of_64_ranks_is_drawn_in_bounded_time_and_memory(tmp_path: Path, report: Callable[..., None]) -> None:
    """The time is a small multiple of reading the files, and the memory the same for ten times the spans."""
    small, large = _files(tmp_path / "small", _SPANS // 10), _files(tmp_path / "large", _SPANS)
    out = tmp_path / "out.json"

    def measure() -> tuple[float, str]:
        # Processor time: a neighbour on the machine stretches the wall time of the one more than of the other.
        plain = _measure(_PLAIN, *large.paths)
        ours = _measure(_TIMELINE, out, *large.paths)
        detail = (
            f"{large.spans} spans from {_RANKS} files of {large.size / 1e6:.0f} MB in {ours.wall_s:.1f} s "
            f"({ours.processor_s:.1f} s of processor time, {plain.processor_s:.1f} s for plain json), "
            f"peak memory {ours.peak_mib:.0f} MiB, output {out.stat().st_size / 1e6:.0f} MB"
        )
        return ours.processor_s / plain.processor_s, detail

    figure, detail = settled(TIME, measure)
    report(TIME, figure, detail)
    assert figure <= TIME.limit
    of_small, of_large = (_measure(_TIMELINE, out, *files.paths).peak_mib for files in (small, large))
    report(MEMORY, max(of_small, of_large))
    report(GROWTH, of_large - of_small, f"{of_small:.0f} MiB for {small.spans} spans, {of_large:.0f} for {large.spans}")
    assert max(of_small, of_large) <= MEMORY.limit
    assert of_large - of_small <= GROWTH.limit
    out.unlink()


@pytest.mark.timeout(1800)
def test_the_summary_keeps_numbers_and_no_spans(tmp_path: Path, report: Callable[..., None]) -> None:
    """A median needs every duration: a few numbers a span are kept, and none of its texts."""
    small, large = _files(tmp_path / "small", _SPANS // 10), _files(tmp_path / "large", _SPANS)
    of_small, of_large = (_measure(_SUMMARY, *files.paths) for files in (small, large))
    a_span = (of_large.peak_mib - of_small.peak_mib) * (1 << 20) / (large.spans - small.spans)
    report(
        SUMMARY,
        a_span,
        f"{of_small.peak_mib:.0f} MiB for {small.spans} spans, {of_large.peak_mib:.0f} for {large.spans}, "
        f"in {of_large.wall_s:.1f} s ({of_large.processor_s:.1f} s of processor time)",
    )
    assert a_span <= SUMMARY.limit
