"""``docs/examples/train_ddp.py`` under PyTorch's profiler: its operators lie inside the spans around the same code."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torchrun_runs import needs_torch, run_example

from nemo_lens.sdk.cli import main
from support.timelines import TraceEvent, loaded, of_phase, tracks
from support.written import Written

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "train_ddp.py"
RANKS, STEPS = 2, 24

pytestmark = [
    needs_torch,
    pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed"),
    pytest.mark.timeout(300),
]


@dataclass(frozen=True)
class Picture:
    """Spans and profiles of two ranks in one trace."""

    trace: dict[str, Any]
    profiles: list[Path]
    said: str

    def rows(self, rank: int) -> dict[str, list[TraceEvent]]:
        """Return the rows of a rank's trainer, from top to bottom."""
        ((_, rows),) = [
            (name, rows)
            for name, rows in tracks(self.trace).items()
            if name.startswith(f"rank {rank} ") and "PyTorch Profiler" in rows
        ]
        return rows

    def spans(self, rank: int, name: str) -> list[TraceEvent]:
        """Return the spans of a name on the main thread, which may take several rows."""
        rows = self.rows(rank)
        return [event for row in rows if row.startswith("main") for event in rows[row] if event["name"] == name]

    def operators(self, rank: int) -> list[TraceEvent]:
        """Return what was recorded on the main thread."""
        rows = self.rows(rank)
        return next(events for row, events in rows.items() if row.startswith("thread "))


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    """Run two ranks with the profiler on and draw everything."""
    folder = tmp_path_factory.mktemp("profiled")
    profiles, written, out = folder / "profiles", Written(folder / "spans"), folder / "timeline.json.gz"
    environ = {"NEMO_LENS_ENABLED": "1", "PROFILE": str(profiles), **written.environ}
    code, _, errors = run_example(EXAMPLE, ranks=RANKS, environ=environ)
    assert code == 0, errors
    arguments = ["timeline", str(folder / "spans"), "-o", str(out), "--quiet", "--with-profiler", str(profiles)]
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("nemo_lens.sdk.cli.timeline._report", said.append)
        assert main(arguments) == 0
    return Picture(loaded(out), sorted(profiles.iterdir()), "\n".join(said))


def inside(inner: TraceEvent, outer: TraceEvent) -> bool:
    return outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def apart(one: TraceEvent, other: TraceEvent) -> bool:
    return one["ts"] + one["dur"] <= other["ts"] or other["ts"] + other["dur"] <= one["ts"]


def test_each_rank_has_a_profile_and_nothing_is_said(picture: Picture) -> None:
    """What ``tensorboard_trace_handler`` writes is found in its folder, and each file's rank in it."""
    assert len(picture.profiles) == RANKS
    assert picture.said == ""


@pytest.mark.parametrize("rank", range(RANKS))
def test_the_profile_is_right_below_the_spans(picture: Picture, rank: int) -> None:
    """On the same process track: the spans of the main thread, then what the profiler recorded of it."""
    rows = list(picture.rows(rank))
    spans = [row for row in rows if row.startswith("main")]
    assert rows[: len(spans)] == spans
    assert rows[len(spans)].startswith("thread ")
    assert any(event["name"].startswith("aten::") for event in picture.operators(rank))


@pytest.mark.parametrize("rank", range(RANKS))
def test_the_operators_of_a_step_lie_inside_its_span(picture: Picture, rank: int) -> None:
    """Each of them, to the nanosecond: no operator sticks out of a step, and none of a step's is elsewhere."""
    steps = picture.spans(rank, "step")
    operators = [event for event in picture.operators(rank) if event["cat"] == "cpu_op"]
    assert len(steps) == STEPS
    for step in steps:
        of_step = [operator for operator in operators if inside(operator, step)]
        assert all(inside(operator, step) or apart(operator, step) for operator in operators)
        names = [operator["name"] for operator in of_step]
        assert names.count("aten::linear") == names.count("AddmmBackward0") == 2, names
    training = {"aten::linear", "AddmmBackward0", "aten::cross_entropy_loss"}
    assert all(any(inside(op, step) for step in steps) for op in operators if op["name"] in training)


@pytest.mark.parametrize("rank", range(RANKS))
@pytest.mark.parametrize(
    ("phase", "operator"),
    [("forward", "aten::cross_entropy_loss"), ("backward", "AddmmBackward0"), ("optimizer", "Optimizer.step#SGD.step")],
)
def test_the_operators_of_a_phase_lie_inside_its_span(picture: Picture, rank: int, phase: str, operator: str) -> None:
    """Phases follow each other within microseconds; each operator is in its own."""
    phases = picture.spans(rank, phase)
    recorded = [event for event in picture.operators(rank) if event["name"] == operator]
    assert len(phases) == STEPS
    for span in phases:
        assert any(inside(event, span) for event in recorded)
    for event in recorded:
        assert sum(inside(event, span) for span in phases) == 1


def test_arrows_from_forward_to_backward_are_kept(picture: Picture) -> None:
    """Both ranks have the same numbers in their files, and numbers of their own in the picture."""
    begins, ends = ([e for e in of_phase(picture.trace, phase) if e["cat"] == "fwdbwd"] for phase in "sf")
    assert len(begins) == len(ends) >= RANKS * STEPS * 2
    assert {event["id"] for event in begins} == {event["id"] for event in ends}
    assert len({event["id"] for event in begins}) == len(begins)


def test_the_profilers_clock_is_the_clock_of_spans(tmp_path: Path) -> None:
    """A record_function begins and ends between readings of ``time.time_ns``, which spans are timed with.

    Kineto reads the processor's cycle counter and converts it: the slack is for what the conversion may be off.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    read: list[tuple[int, int, int, int]] = []
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for number in range(200):
            before = time.time_ns()
            with record_function(f"block {number}"):
                begun = time.time_ns()
                torch.ones(1)
                ending = time.time_ns()
            read.append((before, begun, ending, time.time_ns()))
    path = tmp_path / "profile.json"
    profiler.export_chrome_trace(str(path))
    trace = loaded(path)
    recorded = {event["name"]: event for event in of_phase(trace, "X")}
    base, slack = trace["baseTimeNanoseconds"], 5_000
    for number, (before, begun, ending, after) in enumerate(read):
        event = recorded[f"block {number}"]
        start = base + round(event["ts"] * 1000)
        end = start + round(event["dur"] * 1000)
        assert before - slack <= start <= begun + slack
        assert ending - slack <= end <= after + slack
