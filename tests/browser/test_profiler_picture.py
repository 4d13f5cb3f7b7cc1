"""Perfetto shows merged profiles of PyTorch: below the spans they belong to, without import errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_lens.sdk.cli import main
from support.kineto_traces import STREAM, KinetoTrace
from support.otlp_lines import line, link, span, write
from support.perfetto import Perfetto, thread_slices

PROFILES = Path(__file__).parents[1] / "timeline" / "profiles"
MS = 1_000_000


def drawn(out: Path, spans: Path, *profiles: Path) -> Path:
    arguments = ["timeline", str(spans), "-o", str(out), "--quiet", "--with-profiler", *map(str, profiles)]
    assert main(arguments) == 0
    return out


def test_the_operators_of_two_ranks_lie_inside_their_steps(
    perfetto: Perfetto, screenshots: Path, tmp_path: Path
) -> None:
    """A recorded run of ``docs/examples/train_ddp.py`` on two gloo ranks: as Perfetto has imported it."""
    profiles = [PROFILES / f"ddp-rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
    with perfetto.open(drawn(tmp_path / "ddp.json", PROFILES / "ddp-spans.jsonl", *profiles), height=900) as page:
        assert page.import_errors() == []
        assert not page.has_error_badge()
        slices = thread_slices(page)
        titles = [title.rpartition(" ")[0] for title in page.track_titles()]
        for rank in (0, 1):
            process = f"rank {rank} gpu-a1"
            ours = [found for found in slices if found["process"] == process]
            steps = [found for found in ours if found["name"] == "step"]
            kernels = [found for found in ours if found["name"] in ("aten::addmm", "AddmmBackward0", "aten::mm")]
            assert len(steps) == 3
            for step in steps:
                end = step["ts"] + step["dur"]
                inside = [found for found in kernels if step["ts"] <= found["ts"] and found["ts"] + found["dur"] <= end]
                assert len(inside) == len(kernels) // 3 > 0
            rows = titles[titles.index(process) :]
            assert [row.split(" ")[0] for row in rows[1:4]] == ["main", "main", "thread"]
        first = min(found["ts"] for found in slices if found["name"] == "step")
        last = max(found["ts"] + found["dur"] for found in slices if found["name"] == "step")
        page.show_time(first, last - first)
        page.screenshot(screenshots / "profiler.png")


def test_recorded_profiles_have_no_import_errors(perfetto: Perfetto, tmp_path: Path) -> None:
    """Both of torch's writers, with a second thread; all arrows arrive."""
    profiles = [PROFILES / "kineto.json.gz", PROFILES / "python_export.json"]
    with perfetto.open(drawn(tmp_path / "out.json", PROFILES / "spans.jsonl", *profiles)) as page:
        assert page.import_errors() == []
        assert page.query("SELECT count(*) AS n FROM flow") == [{"n": 18}]
        titles = [title.split(" ")[0] for title in page.track_titles()]
        assert titles == ["rank", "main", "thread", "evaluation", "thread", "evaluation", "thread", "PyTorch"]


@pytest.mark.parametrize("old", [False, True])
def test_gpu_streams_with_all_that_may_be_odd_have_no_import_errors(
    perfetto: Perfetto, tmp_path: Path, old: bool
) -> None:
    """Overlapping and empty slices, times that are shared, arrows with one end, to one launch, and backwards."""
    spans = [
        line(span("train.step", 1 + rank, end=20 * MS, links=[link(2 - rank)]), nv__dl__rank=rank) for rank in (0, 1)
    ]
    profiles = []
    for rank in (0, 1):
        trace = KinetoTrace(rank=rank, pid=100 + rank, device=rank, old=old)
        trace.kernel("gemm", 1 * MS, 2 * MS, 3 * MS, number=5)
        stream = {"category": "kernel", "pid": rank, "tid": STREAM}
        trace.slice("second of the graph", 6 * MS, MS, **stream)
        trace.flow(False, 5, 6 * MS, kind="ac2g", pid=rank, tid=STREAM)
        trace.slice("overlapping", 6 * MS + 500_001, MS, **stream)
        trace.slice("empty", 8 * MS, 0, **stream).slice("same start", 8 * MS, MS, **stream)
        trace.slice("same", 8 * MS, MS, **stream).slice("behind", 9 * MS, MS, **stream)
        trace.flow(False, 7, 9 * MS, kind="ac2g", pid=rank, tid=STREAM)  # its launch was not recorded
        trace.kernel("before its launch", 12 * MS, 11 * MS, MS // 2, number=8)
        trace.flow(True, 9, 15 * MS, kind="ac2g", pid=100 + rank, tid=100 + rank)  # belongs to nothing
        path = tmp_path / f"rank{rank}.pt.trace.json"
        path.write_text(trace.text(), encoding="utf-8")
        profiles.append(path)
    with perfetto.open(drawn(tmp_path / "gpu.json", write(tmp_path / "spans.jsonl", *spans), *profiles)) as page:
        assert page.import_errors() == []
        arrows = page.query(
            "SELECT o.name AS a, i.name AS b FROM flow f "
            "JOIN slice o ON o.id = f.slice_out JOIN slice i ON i.id = f.slice_in"
        )
        named = sorted((row["a"], row["b"]) for row in arrows if row["a"] != "train.step")
        assert named == sorted([("cudaLaunchKernel", "gemm"), ("cudaLaunchKernel", "second of the graph")] * 2)
        slices = {found["name"]: found["thread"] for found in thread_slices(page) if found["process"] == "rank 1"}
        assert slices["gemm"] == slices["behind"] == "GPU 1 stream 7"
        assert slices["overlapping"] == "GPU 1 stream 7 (2)"
        assert len(slices) == 10
