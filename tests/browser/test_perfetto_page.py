"""What the tests of pictures read from Perfetto's page: it sees a bad trace as bad, and a good one as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.perfetto import Perfetto, TraceRefusedError, thread_slices, written_trace

NAMES = [
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "rank 0"}},
    {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "main"}},
]


def test_a_sound_trace_has_no_errors_and_its_tracks(perfetto: Perfetto, tmp_path: Path) -> None:
    """Tracks are read from the page, slices from the engine, and nothing is loaded from anywhere else."""
    step = {"ph": "X", "pid": 1, "tid": 1, "name": "train.step", "ts": 5, "dur": 10.123, "args": {"loss": 2.5}}
    inner = {"ph": "X", "pid": 1, "tid": 1, "name": "forward", "ts": 6, "dur": 1}
    with perfetto.open(written_trace(tmp_path / "sound.json", [*NAMES, step, inner])) as page:
        assert page.import_errors() == []
        assert not page.has_error_badge()
        assert page.track_titles() == ["rank 0 1", "main 1"]
        outer, nested = thread_slices(page)
        assert (outer["process"], outer["thread"], outer["name"], outer["dur"]) == (
            "rank 0",
            "main",
            "train.step",
            10123,
        )
        assert outer["args"] == {"args.loss": "2.5"}
        assert nested["depth"] == 1
        assert page.outside_answers == []
        assert page.faults == []


def test_processes_are_in_the_order_of_their_numbers(perfetto: Perfetto, tmp_path: Path) -> None:
    """Rank 2 stands before rank 10, and a busy rank not before an idle one: the first ones are unfolded, not all."""
    events = []
    for rank in range(12):
        pid = rank + 1
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": f"rank {rank}"}})
        events.append({"ph": "M", "pid": pid, "tid": pid, "name": "thread_name", "args": {"name": "main"}})
        events += [{"ph": "X", "pid": pid, "tid": pid, "name": "s", "ts": 9 * n, "dur": 5} for n in range(pid)]
    with perfetto.open(written_trace(tmp_path / "ranks.json", events), height=1600) as page:
        titles = page.track_titles()
    assert [title for title in titles if "rank" in title] == [f"rank {rank} {rank + 1}" for rank in range(12)]
    assert [title for title in titles if "main" in title] == [f"main {pid}" for pid in range(1, 11)]


def test_import_errors_are_found(perfetto: Perfetto, tmp_path: Path) -> None:
    """What Perfetto complains about is in the list, and on the page as its red badge."""
    events = [
        {"ph": "E", "pid": 1, "tid": 1, "name": "never begun", "ts": 1},
        {"ph": "X", "pid": 1, "tid": 1, "name": "no time", "dur": 1},
        {"ph": "X", "pid": 1, "tid": 1, "name": "sound", "ts": 1, "dur": 1},
    ]
    with perfetto.open(written_trace(tmp_path / "unsound.json", [*NAMES, *events])) as page:
        assert page.import_errors() != []
        assert page.has_error_badge()


def test_what_is_no_trace_is_refused(perfetto: Perfetto, tmp_path: Path) -> None:
    """A file that Perfetto does not open is an error, and not an empty picture."""
    path = tmp_path / "cut.json"
    path.write_text('{"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "name": "cut', encoding="utf-8")
    with pytest.raises(TraceRefusedError), perfetto.open(path):
        pass
