"""``nemo-lens timeline`` over what a real run of several processes writes: the demo, and a program with threads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from support.timelines import loaded, nested, of_phase, tracks

NEMO_LENS = [sys.executable, "-m", "nemo_lens.sdk.cli"]


def environment() -> dict[str, str]:
    """Return an environment without settings of the machine's own that telemetry reads."""
    return {key: text for key, text in os.environ.items() if not key.startswith(("OTEL_", "NEMO_LENS_", "SLURM_"))}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the trace of a demo."""
    folder = tmp_path_factory.mktemp("demo")
    for command in (["demo", "--out", "run", "--steps", "2"], ["timeline", "run", "-o", "trace.json"]):
        subprocess.run(
            [*NEMO_LENS, *command], cwd=folder, env=environment(), capture_output=True, check=True, timeout=50
        )
    return loaded(folder / "trace.json")


def plain(name: str) -> str:
    """Return a process name without host and pid."""
    return re.sub(r"^(rank \d trainer|launcher) .*?( pid \d+)?$", lambda m: m[1] + (" pid" if m[2] else ""), name)


STEP = ["  train.step", "    data.microbatches", "    grads.all_reduce"]
MICROBATCHES = ["train.microbatch"] * 4


def test_the_demo_is_this_picture(demo: dict[str, Any]) -> None:
    """Ranks first, then the forked checkpoint writer and the launcher; generators and tasks on lanes of their own."""
    picture = {
        plain(process): {track: nested(spans) for track, spans in lanes.items()}
        for process, lanes in tracks(demo).items()
    }
    assert list(picture) == ["rank 0 trainer", "rank 1 trainer", "rank 2 trainer", "rank 0 trainer pid", "launcher"]
    assert picture["rank 0 trainer pid"] == {"main": ["checkpoint.write"]}
    assert picture["launcher"] == {"main": ["demo.run", *["  result.collect"] * 3]}
    for rank in (1, 2):
        assert picture[f"rank {rank} trainer"] == {
            "main": ["train.run", "  weights.receive", *STEP, *STEP, "  result.send"],
            "main (2)": [*MICROBATCHES[1:], "train.microbatch (error)", "microbatch.skipped"]
            if rank == 1
            else MICROBATCHES,
        }
    # Both shards are uploaded at a time: one of them is beside the other.
    assert picture["rank 0 trainer"] == {
        "main": [
            "train.run",
            "  weights.broadcast",
            *STEP,
            *STEP,
            "  checkpoint.save",
            "    checkpoint.upload",
            "  result.send",
        ],
        "main (2)": [*MICROBATCHES, "checkpoint.upload"],
    }


def test_what_the_demo_says_across_processes_is_arrows(demo: dict[str, Any]) -> None:
    """Two links from the broadcast; parents: three ranks under the launcher, three results, one forked writer."""
    begins = [event["name"].split(" ")[0] for event in of_phase(demo, "s")]
    assert sorted(begins) == ["link"] * 2 + ["parent"] * 7
    assert len(of_phase(demo, "f")) == 9


def test_the_error_of_the_demo_is_marked(demo: dict[str, Any]) -> None:
    """One microbatch failed: its colour, its status and the exception as an event on its track."""
    [failed] = [event for event in of_phase(demo, "X") if event.get("cname") == "terrible"]
    assert failed["name"] == "train.microbatch (error)"
    assert failed["args"]["status"].startswith("ERROR FloatingPointError")
    assert failed["args"]["dl.iteration"] == 1
    exceptions = [event for event in of_phase(demo, "i") if event["name"] == "exception"]
    assert [(event["pid"], event["tid"]) for event in exceptions] == [(failed["pid"], failed["tid"])]
    assert "exception.stacktrace" in exceptions[0]["args"]
    assert "exception.stacktrace" not in failed["args"]["events"][0]


def test_all_spans_lie_inside_the_run(demo: dict[str, Any]) -> None:
    """Times are microseconds since the first span, which is the launcher's, on one clock for all processes."""
    [run] = [event for event in of_phase(demo, "X") if event["name"] == "demo.run"]
    assert run["ts"] == 0
    for event in of_phase(demo, "X"):
        assert 0 <= event["ts"] <= event["ts"] + event["dur"] <= run["dur"] + 0.001
