"""``nemo-lens timeline --with-profiler``: profiles of PyTorch below the spans of the process they were recorded in."""

from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_lens.sdk.cli import main
from nemo_lens.sdk.cli._timeline.profile.rows import NestingLanes
from support.kineto_traces import STREAM, KinetoTrace
from support.otlp_lines import line, link, span, write
from support.timelines import TraceEvent, loaded, of_phase, tracks

PROFILES = Path(__file__).parent / "profiles"
RECORDED = [PROFILES / "kineto.json.gz", PROFILES / "python_export.json"]
US, MS = 1000, 1_000_000


@pytest.fixture
def spans(tmp_path: Path) -> Path:
    """Spans of two ranks: a step of 10 ms each, with a link so that arrows have numbers."""
    made = []
    for rank in (0, 1):
        step = span("train.step", 10 + rank, start=0, end=10 * MS, links=[link(11 - rank)])
        made.append(line(step, nv__dl__rank=rank, host__name=f"gpu-a{rank}", process__pid=4711 + rank))
    return write(tmp_path / "spans.jsonl", *made)


def merged(tmp_path: Path, spans: Path, *profiles: KinetoTrace | Path, code: int = 0) -> dict[str, Any]:
    """Draw spans and profiles and return the trace."""
    paths = []
    for number, profile in enumerate(profiles):
        path = profile if isinstance(profile, Path) else tmp_path / f"{number}.pt.trace.json"
        if isinstance(profile, KinetoTrace):
            path.write_text(profile.text(), encoding="utf-8")
        paths.append(str(path))
    out = tmp_path / "out.json"
    assert main(["timeline", str(spans), "-o", str(out), "--quiet", "--with-profiler", *paths]) == code
    return loaded(out)


def ends_of(event: TraceEvent) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


def within(inner: TraceEvent, outer: TraceEvent) -> bool:
    """Whether an event lies inside another of the same process."""
    (start, end), (outer_start, outer_end) = ends_of(inner), ends_of(outer)
    return inner["pid"] == outer["pid"] and outer_start <= start and end <= outer_end


def named(trace: dict[str, Any], name: str) -> list[TraceEvent]:
    return [event for event in of_phase(trace, "X") if event["name"] == name]


def arrows(trace: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    """Return the slices that the arrows of a kind go from and to; each binds to a slice of its track, once per end."""
    slices: dict[tuple[int, int, float], str] = {}
    for event in of_phase(trace, "X"):
        slices[event["pid"], event["tid"], event["ts"]] = event["name"]
    found: dict[int, dict[str, str]] = {}
    for event in [*of_phase(trace, "s"), *of_phase(trace, "f")]:
        if event["cat"] == kind:
            ends = found.setdefault(event["id"], {})
            assert event["ph"] not in ends
            ends[event["ph"]] = slices[event["pid"], event["tid"], event["ts"]]
    return sorted((ends["s"], ends["f"]) for ends in found.values())


@pytest.mark.parametrize("profile", RECORDED, ids=lambda path: path.name)
def test_a_step_stands_over_what_was_recorded_in_it(tmp_path: Path, profile: Path) -> None:
    """In a real profile each record_function around the code of a step lies in the step's span, within microseconds.

    The clocks are the same: the span begins before and ends behind, by no more than making it takes.
    """
    trace = merged(tmp_path, PROFILES / "spans.jsonl", profile)
    steps = named(trace, "step")
    for index in range(3):
        (recorded,) = named(trace, f"record_step_{index}")
        (step,) = [step for step in steps if step["args"]["dl.iteration"] == index and within(recorded, step)]
        assert recorded["ts"] - step["ts"] < 300
        assert ends_of(step)[1] - ends_of(recorded)[1] < 300
        inside = [
            event for event in of_phase(trace, "X") if event["tid"] == recorded["tid"] and within(event, recorded)
        ]
        assert {"aten::linear", "aten::sum"} <= {event["name"] for event in inside}


@pytest.mark.parametrize("profile", RECORDED, ids=lambda path: path.name)
def test_a_thread_of_the_profiler_is_right_below_the_same_thread_of_spans(tmp_path: Path, profile: Path) -> None:
    """Threads are told apart by their ids; the main thread is the one whose id is the process's."""
    trace = merged(tmp_path, PROFILES / "spans.jsonl", profile)
    ((_, rows),) = tracks(trace).items()
    names = list(rows)
    below = {above: row for above, row in itertools.pairwise(names) if row.startswith("thread ")}
    assert [name.split(" ")[0] for name in below] == ["main", "evaluation"]
    found = [[event["name"] for event in rows[row] if "record" in event["name"]] for row in below.values()]
    assert found == [["record_step_0", "record_step_1"], ["record_step_2"]]
    assert names[-1] == "PyTorch Profiler"


def test_files_of_one_process_share_their_rows(tmp_path: Path) -> None:
    """A profiler with a schedule writes a file each cycle: the process has each row once."""
    trace = merged(tmp_path, PROFILES / "spans.jsonl", *RECORDED)
    names = list(*tracks(trace).values())
    assert [name.split(" ")[0] for name in names].count("PyTorch") == 1
    assert len(named(trace, "record_step_0")) == 2
    assert len({event["tid"] for event in named(trace, "record_step_0")}) == 1


def test_forward_and_backward_of_a_real_profile_stay_connected(tmp_path: Path) -> None:
    """Every arrow of the file is there, under a number of its own though both files begin at 1."""
    trace = merged(tmp_path, PROFILES / "spans.jsonl", *RECORDED)
    found = arrows(trace, "fwdbwd")
    assert len(found) == 2 * 3 * 3  # files, steps, operators with a backward
    assert set(found) == {("aten::addmm", "AddmmBackward0"), ("aten::t", "TBackward0"), ("aten::sum", "SumBackward0")}


def test_kernels_are_rows_of_their_rank(tmp_path: Path, spans: Path) -> None:
    """Streams of a GPU belong to the process that the profile is of, whatever pid the profiler gives them."""
    profiles = []
    for rank in (0, 1):
        profile = KinetoTrace(rank=rank, pid=4711 + rank, device=rank)
        profiles.append(profile.kernel("gemm", 1 * MS, 2 * MS, 3 * MS, number=5))
    trace = merged(tmp_path, spans, *profiles)
    assert list(tracks(trace)) == ["rank 0 gpu-a0", "rank 1 gpu-a1"]
    for rank, rows in enumerate(tracks(trace).values()):
        assert list(rows) == ["main", f"thread {4711 + rank} (python)", f"GPU {rank} stream 7"]
        (kernel,) = rows[f"GPU {rank} stream 7"]
        assert within(kernel, rows["main"][0])
        assert kernel["args"] == {"device": rank, "stream": STREAM, "correlation": 5, "est. achieved occupancy %": 50.5}
    assert arrows(trace, "ac2g") == [("cudaLaunchKernel", "gemm")] * 2
    assert arrows(trace, "link") == [("train.step", "train.step")] * 2
    assert len({event["id"] for event in of_phase(trace, "s")}) == 4


def test_a_graph_launch_has_an_arrow_to_each_kernel(tmp_path: Path, spans: Path) -> None:
    """Kernels of one launch share its number."""
    profile = KinetoTrace(pid=4711).kernel("first", 1 * MS, 2 * MS, 1 * MS, number=5)
    profile.slice("second", 4 * MS, 1 * MS, category="kernel", pid=0, tid=STREAM)
    profile.flow(False, 5, 4 * MS, kind="ac2g", pid=0, tid=STREAM)
    assert arrows(merged(tmp_path, spans, profile), "ac2g") == [
        ("cudaLaunchKernel", "first"),
        ("cudaLaunchKernel", "second"),
    ]


def test_an_arrow_with_one_end_is_left_out(tmp_path: Path, spans: Path) -> None:
    """The launch of what ran when the profile began was not recorded; a viewer calls half an arrow an error."""
    profile = KinetoTrace(pid=4711).slice("kernel", 4 * MS, 1 * MS, category="kernel", pid=0, tid=STREAM)
    profile.flow(False, 5, 4 * MS, kind="ac2g", pid=0, tid=STREAM)
    profile.flow(True, 6, 9 * MS, kind="ac2g", pid=4711, tid=4711)  # and one that belongs to no slice
    profile.flow(False, 6, 9 * MS, kind="ac2g", pid=0, tid=STREAM)
    trace = merged(tmp_path, spans, profile)
    assert arrows(trace, "ac2g") == []


def test_times_are_exact(tmp_path: Path, spans: Path) -> None:
    """Nanoseconds survive: slices that share an end in the profile share it in the picture."""
    profile = KinetoTrace(pid=4711).slice("outer", 1_000_001, 2_000_002).slice("inner", 1_500_002, 1_500_001)
    trace = merged(tmp_path, spans, profile)
    (outer,), (inner,) = named(trace, "outer"), named(trace, "inner")
    assert round(outer["ts"] * 1000) == 1_000_001
    assert round((inner["ts"] + inner["dur"]) * 1000) == 3_000_003 == round((outer["ts"] + outer["dur"]) * 1000)


def test_times_of_an_older_version_count_from_the_epoch(tmp_path: Path, spans: Path) -> None:
    """Before ``baseTimeNanoseconds`` they are whole microseconds since 1970, and pids have no labels."""
    profile = KinetoTrace(pid=4711, old=True).slice("aten::mm", 1 * MS, 2 * MS).kernel("gemm", MS, 2 * MS, MS, number=1)
    trace = merged(tmp_path, spans, profile)
    ((operator,), (kernel,), (step, _)) = (named(trace, name) for name in ("aten::mm", "gemm", "train.step"))
    assert (operator["ts"] - step["ts"], operator["dur"]) == (1000, 2000)
    assert list(tracks(trace)["rank 0 gpu-a0"]) == ["main", "thread 4711 (python)", "GPU 0 stream 7"]
    assert within(kernel, step)


def test_slices_that_overlap_get_a_row_each(tmp_path: Path, spans: Path) -> None:
    """Of two kernels that overlap on a stream, neither is drawn inside the other, or dropped by the viewer."""
    profile = KinetoTrace(pid=4711)
    for name, start in (("first", 1), ("second", 2), ("third", 5)):
        profile.slice(name, start * MS, 2 * MS, category="kernel", pid=0, tid=STREAM)
    rows = tracks(merged(tmp_path, spans, profile))["rank 0 gpu-a0"]
    assert [event["name"] for event in rows["GPU 0 stream 7"]] == ["first", "third"]
    assert [event["name"] for event in rows["GPU 0 stream 7 (2)"]] == ["second"]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=60))
def test_on_a_row_any_two_slices_are_disjoint_or_nested(times: list[tuple[int, int]]) -> None:
    """Whatever the profiler wrote."""
    lanes = NestingLanes()
    slices = sorted(((start, start + length) for start, length in times), key=lambda pair: (pair[0], -pair[1]))
    placed: dict[int, list[tuple[int, int]]] = {}
    for start, end in slices:
        placed.setdefault(lanes.place(start, end), []).append((start, end))
    for row in placed.values():
        for index, (start, end) in enumerate(row):
            for other_start, other_end in row[:index]:
                assert other_end <= start or (other_start <= start and end <= other_end)


def test_the_rank_decides(tmp_path: Path, spans: Path) -> None:
    """``distributedInfo.rank`` comes before process id and file name."""
    path = tmp_path / "rank0.pt.trace.json"
    path.write_text(KinetoTrace(rank=1, pid=4712).slice("aten::mm", MS, MS).text(), encoding="utf-8")
    assert "thread 4712 (python)" in tracks(merged(tmp_path, spans, path))["rank 1 gpu-a1"]


def test_a_worker_process_of_the_rank_is_not_taken_for_it(tmp_path: Path) -> None:
    """Processes that load data have the trainer's rank; the process id tells which of them was profiled."""
    made = []
    for number, pid in enumerate((5000, 4711, 5001), 1):
        made.append(line(span(f"of {pid}", number), nv__dl__rank=0, host__name="gpu-a1", process__pid=pid))
    trace = merged(tmp_path, write(tmp_path / "s.jsonl", *made), KinetoTrace(pid=4711).slice("aten::mm", 0, 500))
    ((operator,), (trainer,)) = named(trace, "aten::mm"), named(trace, "of 4711")
    assert operator["pid"] == trainer["pid"]


@pytest.mark.parametrize(
    ("host", "name"),
    [("gpu-a1", "0.pt.trace.json"), ("gpu-a1.cluster", "0.pt.trace.json"), ("", "gpu-a1_4712.123456.pt.trace.json")],
)
def test_without_a_rank_process_and_host_tell(tmp_path: Path, spans: Path, host: str, name: str) -> None:
    """Two hosts have a process of this id: the host is in the file, and in one of an older version in its name."""
    content = spans.read_text(encoding="utf-8").replace('"intValue": "4711"', '"intValue": "4712"')
    spans.write_text(content, encoding="utf-8")
    path = tmp_path / name
    profile = KinetoTrace(rank=None, pid=4712, host=host).slice("aten::mm", MS, MS)
    path.write_text(profile.text(), encoding="utf-8")
    assert "thread 4712 (python)" in tracks(merged(tmp_path, spans, path))["rank 1 gpu-a1"]


@pytest.mark.parametrize("name", ["rank1.json", "trace_rank_1.json", "Rank-1/profile.json", "run.rank01.pt.trace.json"])
def test_without_either_the_name_of_the_file_tells(tmp_path: Path, name: str) -> None:
    """A rank in the name of the file, or of its folder, is taken for it."""
    spans = write(tmp_path / "s.jsonl", *(line(span("step", rank + 1), nv__dl__rank=rank) for rank in (0, 1)))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(KinetoTrace(rank=None, pid=99).slice("aten::mm", MS, MS).text(), encoding="utf-8")
    assert "thread 99 (python)" in tracks(merged(tmp_path, spans, path))["rank 1"]


def test_a_rank_without_spans_is_drawn(tmp_path: Path, spans: Path) -> None:
    """In its place among the ranks."""
    profiles = [KinetoTrace(rank=rank, pid=50 + rank, host="gpu-b1").slice("aten::mm", MS, MS) for rank in (3, 2)]
    found = tracks(merged(tmp_path, spans, *profiles))
    assert list(found) == ["rank 0 gpu-a0", "rank 1 gpu-a1", "rank 2 gpu-b1", "rank 3 gpu-b1"]
    assert list(found["rank 2 gpu-b1"]) == ["thread 52 (python)"]


def test_a_profile_of_nobody_is_drawn_by_itself_and_named(
    tmp_path: Path, spans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what was looked for, and what to do."""
    trace = merged(tmp_path, spans, KinetoTrace(rank=None, pid=99, host="gpu-c1").slice("aten::mm", MS, MS))
    assert list(tracks(trace))[-1] == "0.pt.trace.json gpu-c1"
    message = capsys.readouterr().err
    assert "0.pt.trace.json: drawn by itself" in message
    assert "no span is of process 99 on host gpu-c1" in message
    assert "rank3.pt.trace.json" in message


def test_a_folder_stands_for_the_profiles_in_it(tmp_path: Path, spans: Path) -> None:
    """What ``tensorboard_trace_handler`` writes there, and not a picture that was drawn before."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    for rank in (0, 1):
        text = KinetoTrace(rank=rank, pid=4711 + rank).slice("aten::mm", MS, MS).text()
        (folder / f"gpu_{rank}.{rank}.pt.trace.json").write_text(text, encoding="utf-8")
    (folder / "timeline.json").write_text('{"traceEvents": 1}', encoding="utf-8")
    assert len(named(merged(tmp_path, spans, folder, folder / "gpu_0.0.pt.trace.json"), "aten::mm")) == 2


def test_counters_and_instants_are_kept(tmp_path: Path, spans: Path) -> None:
    """Events of other kinds that a profiler writes; the window's own marks are in its slice."""
    profile = KinetoTrace(pid=4711).slice("aten::mm", MS, MS)
    time = profile._time(MS)  # as the slice has it
    common = f'"pid": 4711, "tid": 4711, "ts": {time}'
    profile.events.append(
        f'{{"ph": "i", "s": "t", "name": "[memory]", {common}, "args": {{"Bytes": 64, "Device": "x"}}}}'
    )
    profile.events.append(f'{{"ph": "C", "name": "sm active", {common}, "args": {{"value": 0.5, "unit": "%"}}}}')
    # Perfetto counts an import error for each counter without a number, and for each value that is none.
    profile.events.append(f'{{"ph": "C", "name": "nothing", {common}, "args": {{"on": true, "far": 1e400}}}}')
    profile.events.append(f'{{"ph": "C", "name": "none", {common}}}')
    trace = merged(tmp_path, spans, profile)
    (instant,), (counter,) = of_phase(trace, "i"), of_phase(trace, "C")
    assert (instant["name"], instant["s"], instant["args"]["Bytes"]) == ("[memory]", "t", 64)
    assert (counter["name"], counter["args"]) == ("sm active", {"value": 0.5})


def test_the_output_does_not_overwrite_a_profile(tmp_path: Path, spans: Path) -> None:
    """A profile is an input like the others."""
    path = tmp_path / "rank0.json"
    path.write_text(KinetoTrace().slice("aten::mm", MS, MS).text(), encoding="utf-8")
    before = path.read_bytes()
    assert main(["timeline", str(spans), "-o", str(path), "--with-profiler", str(path)]) == 1
    assert path.read_bytes() == before


def test_a_profile_alone_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the spans are missing, that is said, and the profile is there."""
    empty = write(tmp_path / "none.jsonl")
    trace = merged(tmp_path, empty, KinetoTrace(rank=2).slice("aten::mm", MS, MS))
    assert list(tracks(trace)) == ["rank 2 gpu-a1"]
    assert "no span found in 1 file" in capsys.readouterr().err


def test_a_summary_alone_takes_no_profile(tmp_path: Path, spans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It draws nothing: what to do is said."""
    assert main(["timeline", "--summary", str(spans), "--with-profiler", str(RECORDED[0])]) == 2
    assert "--with-profiler draws a trace: with --summary it takes -o, too" in capsys.readouterr().err
    out = tmp_path / "out.json"
    assert main(["timeline", "--summary", str(spans), "-o", str(out), "--with-profiler", str(RECORDED[0])]) == 0
    assert len(named(loaded(out), "record_step_0")) == 1


def test_recorded_profiles_name_no_machine() -> None:
    """What is in the project was recorded somewhere, and does not say where."""
    for path in PROFILES.iterdir():
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        for word in ("/root", "/home", "/tmp", "site-packages"):
            assert word not in text, path
        for key, host in re.findall(r'"(host_name|traceName)": "([^_"]*)', text):
            assert host == "gpu-a1" or key == "traceName", path
