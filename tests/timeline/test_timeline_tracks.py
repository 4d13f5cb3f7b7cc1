"""Which process a span belongs to, and the order and names of processes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from nemo_lens.sdk.cli._timeline.tracks import Processes
from support.otlp_lines import line, span, write
from support.timelines import of_phase, trace_of, tracks


def names(tmp_path: Path, *lines: str) -> list[str]:
    """Return the names of the processes in the order of the picture, from files in any order."""
    shuffled = list(lines)
    random.Random(len(lines)).shuffle(shuffled)
    return list(tracks(trace_of(write(tmp_path / "a.jsonl", *shuffled), out=tmp_path / "out.json")))


def test_ranks_come_in_rank_order_by_number(tmp_path: Path) -> None:
    """Rank 10 after rank 9, in a viewer that sorts by name, too; what has no rank comes last."""
    lines = [line(span("s", 1 + rank), nv__dl__rank=rank, host__name="h") for rank in range(12)]
    others = [line(span("s", 100), service__name="launch.sh"), line(span("s", 101), nv__dl__role="launcher")]
    found = names(tmp_path, *lines, *others)
    assert found == [*(f"rank {rank:02} h" for rank in range(12)), "launch.sh", "launcher"]
    assert found[:12] == sorted(found[:12])


def test_trainers_come_before_other_roles_and_before_forked_children(tmp_path: Path) -> None:
    """All trainer ranks lie together; the children of a rank follow, told apart by their pid."""
    shown = names(
        tmp_path,
        line(span("run", 1), nv__dl__rank=0, nv__dl__role="trainer", process__pid=10, host__name="h"),
        line(span("write", 2, 1, 5), nv__dl__rank=0, nv__dl__role="trainer", process__pid=11, host__name="h"),
        line(span("write", 3, 1, 6), nv__dl__rank=0, nv__dl__role="trainer", process__pid=12, host__name="h"),
        line(span("run", 4), nv__dl__rank=1, nv__dl__role="trainer", process__pid=9, host__name="h"),
        line(span("run", 5), nv__dl__rank=0, nv__dl__role="generator", process__pid=8, host__name="h"),
    )
    assert shown == [
        "rank 0 trainer h",
        "rank 1 trainer h",
        "rank 0 generator h",
        "rank 0 trainer h pid 11",
        "rank 0 trainer h pid 12",
    ]


def test_two_attempts_of_a_rank_are_two_processes(tmp_path: Path) -> None:
    """Restarted ranks are told apart by pid, in the order in which they ran; neither is the other's child."""
    shown = names(
        tmp_path,
        line(span("second", 1, 0, 500), nv__dl__rank=0, process__pid=3),
        line(span("first", 2, 0, 100), nv__dl__rank=0, process__pid=7),
        line(span("other", 3, 0, 0), nv__dl__rank=1, process__pid=5),
    )
    assert shown == ["rank 0 pid 7", "rank 0 pid 3", "rank 1"]


def test_one_process_on_several_lines_is_one_track(tmp_path: Path) -> None:
    """What may change while a process runs does not make another of it."""
    shown = names(
        tmp_path,
        line(span("a", 1), nv__dl__rank=0, process__pid=3, extra="early"),
        line(span("b", 2), nv__dl__rank=0, process__pid=3, extra="late"),
    )
    assert shown == ["rank 0"]


def test_the_same_pid_on_two_hosts_is_two_processes(tmp_path: Path) -> None:
    """In containers every process may be pid 1."""
    shown = names(
        tmp_path, *(line(span("s", n), process__pid=1, host__name=f"h{n}", service__name="s") for n in (1, 2))
    )
    assert shown == ["s h1", "s h2"]


def test_a_process_is_named_by_what_is_known(tmp_path: Path) -> None:
    """Whatever a resource lacks, its spans are drawn and have a name."""
    given: list[dict[str, Any]] = [
        {},
        {"process__pid": 4},
        {"service__instance__id": "one"},
        {"nv__dl__rank": "text"},
        {"service__name": "\x1b[31m"},
    ]
    shown = names(tmp_path, *(line(span("s", number), **own) for number, own in enumerate(given, 1)))
    assert set(shown) == {"process", "pid 4", "one", "rank text", "\x1b[31m"}


def test_numbers_of_tracks_are_unique_and_in_order(tmp_path: Path) -> None:
    """Viewers order tracks by the numbers: processes from 1, main threads by theirs, every other track its own."""
    lines = [
        line(
            span("a", 10 * rank + 1),
            span("b", 10 * rank + 2, attributes={"thread.id": 5}),
            span("c", 10 * rank + 3, 0, 500, 1500),
            nv__dl__rank=rank,
        )
        for rank in (2, 0, 1)
    ]
    trace = trace_of(write(tmp_path / "a.jsonl", *lines), out=tmp_path / "out.json")
    sort = {event["pid"]: event["args"] for event in of_phase(trace, "M") if event["name"] == "process_sort_index"}
    assert sort == {pid: {"sort_index": pid} for pid in (1, 2, 3)}
    tids = [(event["pid"], event["tid"]) for event in of_phase(trace, "M") if event["name"] == "thread_name"]
    assert len({tid for _, tid in tids}) == len(tids) == 9
    for pid in (1, 2, 3):
        named = {
            event["args"]["name"]: event["tid"]
            for event in of_phase(trace, "M")
            if event["name"] == "thread_name" and event["pid"] == pid
        }
        assert named["main"] == pid < named["main (2)"] < named["thread 5"]


def test_threads_keep_their_numbers_whatever_their_ids_are() -> None:
    """Ids of other writers may be text, or lists; a name that two threads share gets the id."""
    process = Processes().of({"process.pid": 1})
    assert [process.thread(ident, "w") for ident in (2, "2", (1, 2), 2)] == [1, 2, 3, 1]
    assert process.thread(None, "w") == process.thread(1, "w") == 0
    assert process.thread_names == ["main", "w", "w 2", "w (1, 2)"]
