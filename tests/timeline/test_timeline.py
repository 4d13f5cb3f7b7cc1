"""``nemo-lens timeline`` over small files laid out by hand: the trace events, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.otlp_lines import BASE_NS, TRACE, event, line, link, span, write
from support.timelines import nested, of_phase, trace_of, tracks

STATUS_ERROR = {"code": 2, "message": "ValueError: no"}


def one_file(tmp_path: Path, *lines: str) -> dict[str, Any]:
    return trace_of(write(tmp_path / "a.jsonl", *lines), out=tmp_path / "out.json")


def test_two_ranks_are_exactly_this(tmp_path: Path) -> None:
    """Every event of a small trace: metadata, spans, an arrow for a link, an event, in microseconds since the base."""
    resource = {"nv__dl__role": "trainer", "host__name": "gpu-a1"}
    rank0 = write(
        tmp_path / "0.jsonl",
        line(
            span("send", 2, 1, 1_500, 2_001, attributes={"dl.iteration": 3}),
            span("run", 1, 0, 0, 10_000),
            nv__dl__rank=0,
            process__pid=70,
            service__name="job",
            nemo__run__id="r1",
            **resource,
        ),
    )
    received = span(
        "receive",
        3,
        0,
        2_000,
        3_000,
        status=STATUS_ERROR,
        links=[link(2, why="data")],
        events=[event("late", 2_250, n=1)],
    )
    rank1 = write(tmp_path / "1.jsonl", line(received, nv__dl__rank=1, **resource))
    assert trace_of(rank1, rank0, out=tmp_path / "out.json") == {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "rank 0 trainer gpu-a1"}},
            {"ph": "M", "name": "process_sort_index", "pid": 1, "args": {"sort_index": 1}},
            {"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": "service job, run r1, pid 70"}},
            {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "rank 1 trainer gpu-a1"}},
            {"ph": "M", "name": "process_sort_index", "pid": 2, "args": {"sort_index": 2}},
            {"ph": "M", "name": "thread_name", "pid": 2, "tid": 2, "args": {"name": "main"}},
            {"ph": "M", "name": "thread_sort_index", "pid": 2, "tid": 2, "args": {"sort_index": 2}},
            {
                "ph": "X",
                "pid": 2,
                "tid": 2,
                "ts": 2,
                "dur": 1,
                "name": "receive (error)",
                "cat": "lib",
                "cname": "terrible",
                "args": {
                    "trace_id": TRACE,
                    "span_id": "0000000000000003",
                    "status": "ERROR ValueError: no",
                    "links": [{"trace_id": TRACE, "span_id": "0000000000000002", "why": "data"}],
                    "events": [{"name": "late", "offset_ns": 250, "n": 1}],
                    "resource": {"nv.dl.rank": 1, "nv.dl.role": "trainer", "host.name": "gpu-a1"},
                },
            },
            {"ph": "f", "bp": "e", "cat": "link", "name": "link", "id": 1, "pid": 2, "tid": 2, "ts": 2},
            {
                "ph": "i",
                "s": "t",
                "pid": 2,
                "tid": 2,
                "ts": 2.25,
                "name": "late",
                "cat": "event",
                "args": {"n": 1, "span": "receive", "span_id": "0000000000000003"},
            },
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}},
            {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 1, "args": {"sort_index": 1}},
            {
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": 0,
                "dur": 10,
                "name": "run",
                "cat": "lib",
                "args": {
                    "trace_id": TRACE,
                    "span_id": "0000000000000001",
                    "resource": {
                        "nv.dl.rank": 0,
                        "process.pid": 70,
                        "service.name": "job",
                        "nemo.run.id": "r1",
                        "nv.dl.role": "trainer",
                        "host.name": "gpu-a1",
                    },
                },
            },
            {
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": 1.5,
                "dur": 0.501,
                "name": "send",
                "cat": "lib",
                "args": {
                    "dl.iteration": 3,
                    "trace_id": TRACE,
                    "span_id": "0000000000000002",
                    "parent_id": "0000000000000001",
                },
            },
            {"ph": "s", "cat": "link", "name": "link", "id": 1, "pid": 1, "tid": 1, "ts": 1.5},
        ],
    }


def arrows(trace: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Return name, span at the begin and span at the end of each arrow, which lie on these spans by track and time."""
    at = {(span["pid"], span["tid"], span["ts"]): span["name"] for span in of_phase(trace, "X")}
    ends: dict[int, dict[str, Any]] = {}
    for phase in "sf":
        for end in of_phase(trace, phase):
            ends.setdefault(end["id"], {"name": end["name"]})[phase] = end
    assert all(arrow["s"]["ts"] <= arrow["f"]["ts"] for arrow in ends.values())
    assert all(arrow["s"]["name"] == arrow["f"]["name"] for arrow in ends.values())
    return {
        (arrow["name"], *(at[arrow[phase]["pid"], arrow[phase]["tid"], arrow[phase]["ts"]] for phase in "sf"))
        for arrow in ends.values()
    }


def test_a_parent_in_another_process_is_an_arrow(tmp_path: Path) -> None:
    """From the parent to the child, across files; a parent in the same process needs none."""
    trace = one_file(
        tmp_path,
        line(span("child", 2, 1, 100), span("grandchild", 3, 2, 150), nv__dl__rank=1),
        line(span("launch", 1, 0, 50), nv__dl__role="launcher"),
    )
    assert arrows(trace) == {("parent", "launch", "child")}


def test_an_arrow_never_ends_before_it_begins(tmp_path: Path) -> None:
    """Where clocks disagree, or a link names a later span, the arrow goes with time and its name says so."""
    trace = one_file(
        tmp_path,
        line(span("child", 2, 1, 100), span("same time", 4, 1, 300), nv__dl__rank=1),
        line(span("launch", 1, 0, 300), span("early", 3, 0, 10, links=[link(2)]), nv__dl__rank=0),
    )
    assert arrows(trace) == {
        ("parent (starts later)", "child", "launch"),
        ("parent (starts later)", "same time", "launch"),
        ("link (starts later)", "early", "child"),
    }
    order = [(event["ph"], event["id"]) for event in trace["traceEvents"] if event["ph"] in "sf"]
    same_time = next(event["id"] for event in of_phase(trace, "f") if event["ts"] == of_phase(trace, "f")[-1]["ts"])
    assert order.index(("s", same_time)) < order.index(("f", same_time))


def test_ids_that_every_rank_has_make_no_arrows_between_ranks(tmp_path: Path) -> None:
    """Ranks with one random seed draw the same ids: a span's parent is that of its own process."""
    step, forward = span("step", 1), span("forward", 2, 1, 10, 20)
    lines = [line(step, forward, nv__dl__rank=rank) for rank in range(3)]
    trace = trace_of(write(tmp_path / "run.jsonl", *lines), out=tmp_path / "out.json")
    assert of_phase(trace, "s") == []
    assert [nested(events) for process in tracks(trace).values() for events in process.values()] == [
        ["step", "  forward"]
    ] * 3


def test_a_link_to_what_is_not_there_is_an_argument_only(tmp_path: Path) -> None:
    """No arrow leads into nothing, and none from a span to itself."""
    trace = one_file(tmp_path, line(span("a", 1, links=[link(9), link(1)])))
    assert of_phase(trace, "s") == of_phase(trace, "f") == []
    assert len(of_phase(trace, "X")[0]["args"]["links"]) == 2


def test_threads_have_tracks_of_their_own(tmp_path: Path) -> None:
    """By ``thread.id``, named by ``thread.name``; the main thread, named or not, is the first."""
    worker = {"thread.id": 71, "thread.name": "loader"}
    trace = one_file(
        tmp_path,
        line(
            span("load", 2, 1, 10, 900, attributes=worker),
            span("decode", 3, 2, 20, 30, attributes=worker),
            span("other", 4, 1, 10, 900, attributes={"thread.id": 72, "thread.name": "loader"}),
            span("nameless", 5, 1, 10, 900, attributes={"thread.id": 73}),
            span("named main", 6, 1, 40, 50, attributes={"thread.id": 99, "thread.name": "MainThread"}),
            span("main by pid", 7, 1, 60, 70, attributes={"thread.id": 70, "thread.name": "renamed"}),
            span("run", 1),
            nv__dl__rank=0,
            process__pid=70,
        ),
    )
    assert {name: nested(spans) for name, spans in tracks(trace)["rank 0"].items()} == {
        "main": ["run", "  named main", "  main by pid"],
        "loader": ["load", "  decode"],
        "loader 72": ["other"],
        "thread 73": ["nameless"],
    }


def test_overlapping_spans_of_a_thread_get_lanes(tmp_path: Path) -> None:
    """Asynchronous tasks lie side by side, each with its own children below it, and a free lane is used again."""
    trace = one_file(
        tmp_path,
        line(
            span("run", 1, 0, 0, 1000),
            span("task a", 2, 1, 100, 500),
            span("task b", 3, 1, 200, 600),
            span("in b", 4, 3, 300, 400),
            span("in a", 5, 2, 300, 350),
            span("task c", 6, 1, 600, 700),
        ),
    )
    assert {name: nested(spans) for name, spans in tracks(trace)["process"].items()} == {
        "main": ["run", "  task a", "    in a", "  task c"],
        "main (2)": ["task b", "  in b"],
    }


def test_what_is_wrong_with_a_span_is_in_its_name_or_colour(tmp_path: Path) -> None:
    """Truncated, endless, inverted, nameless: drawn all the same, with a mark, never longer than it was."""
    trace = one_file(
        tmp_path,
        line(
            span("cut", 1, 0, 0, 10, attributes={"nemo.span.truncated": True}),
            {**span("open", 2, 0, 20), "endTimeUnixNano": "0"},
            {**span("unstarted", 3, 0, 0, 30), "startTimeUnixNano": "0"},
            span("inverted", 4, 0, 50, 40),
            span("", 5, 0, 60, 70),
            {**span("timeless", 6), "startTimeUnixNano": "0", "endTimeUnixNano": "0"},
            span("failed", 7, 0, 80, 90, status={"code": 2}),
            span("fine", 8, 0, 90, 95, status={"code": 1}),
        ),
    )
    spans = of_phase(trace, "X")
    assert [(span["name"], span["dur"], span.get("cname"), span["args"].get("status")) for span in spans] == [
        ("cut (truncated)", 0.01, "bad", None),
        ("open (no end)", 0, "bad", None),
        ("unstarted", 0, None, None),
        ("inverted", 0, None, None),
        ("(no name)", 0.01, None, None),
        ("failed (error)", 0.01, "terrible", "ERROR"),
        ("fine", 0.005, None, "OK"),
    ]
    assert spans[3]["args"]["end"] == "10 ns before the start"


def test_events_outside_of_their_span_are_moved_to_its_bounds(tmp_path: Path) -> None:
    """An event is drawn on its span and says when it was recorded."""
    trace = one_file(
        tmp_path,
        line(span("a", 1, 0, 100, 200, events=[event("before", 0), event("in", 150), event("after", 300)])),
    )
    assert [(event["name"], event["ts"], event["args"].get("recorded_at_ns")) for event in of_phase(trace, "i")] == [
        ("before", 0, str(BASE_NS)),
        ("in", 0.05, None),
        ("after", 0.1, str(BASE_NS + 300)),
    ]


def test_attributes_of_every_kind_are_arguments(tmp_path: Path) -> None:
    """Numbers stay numbers, what JSON lacks is text, and an attribute never hides what the picture says itself."""
    given: dict[str, object] = {
        "i": 2**63 - 1,
        "f": 0.5,
        "nan": float("nan"),
        "inf": float("-inf"),
        "flag": True,
        "none": None,
        "list": [1, "two", [None]],
        "map": {"a": {"b": 1}},
        "span_id": "mine",
        "resource": "mine",
        "": "empty key",
        "long": "x" * 20_000,
        "many": list(range(1000)),
        "control": 'a\x00\x1b"\\\n',
    }
    shown = of_phase(one_file(tmp_path, line(span("a", 1, attributes=given))), "X")[0]["args"]
    assert shown["long"] == "x" * 16384 + "... (20000 characters)"
    assert shown["many"] == [*range(256), "... (1000 in all)"]
    assert {key: shown[key] for key in shown if key not in ("long", "many")} == {
        "i": 2**63 - 1,
        "f": 0.5,
        "nan": "NaN",
        "inf": "-Infinity",
        "flag": True,
        "none": "null",
        "list": [1, "two", ["null"]],
        "map": {"a": {"b": 1}},
        "attribute.span_id": "mine",
        "attribute.resource": "mine",
        "": "empty key",
        "control": 'a\x00\x1b"\\\n',
        "trace_id": TRACE,
        "span_id": "0000000000000001",
        "resource": {},
    }


def test_a_span_read_twice_is_drawn_once(tmp_path: Path) -> None:
    """A copy of a file adds nothing; another span with the same id is another span."""
    text = line(span("a", 1, links=[link(2)]), span("b", 2))
    first, copy = write(tmp_path / "a.jsonl", text), write(tmp_path / "copy.jsonl", text)
    other = write(tmp_path / "b.jsonl", line(span("not a", 1)))
    trace = trace_of(first, copy, other, out=tmp_path / "out.json")
    assert sorted(span["name"] for span in of_phase(trace, "X")) == ["a", "b", "not a"]
    assert len(of_phase(trace, "s")) == 1


def test_parents_in_a_circle_are_drawn(tmp_path: Path) -> None:
    """No parent relation, however wrong, keeps a span out of the picture."""
    trace = one_file(tmp_path, line(span("a", 1, 2), span("b", 2, 1, 10, 900), span("self", 3, 3, 20, 800)))
    assert sorted(span["name"] for span in of_phase(trace, "X")) == ["a", "b", "self"]


def test_a_lost_parent_does_not_move_its_children_away(tmp_path: Path) -> None:
    """A child of a span that was not written stays below the open span of the same trace."""
    trace = one_file(tmp_path, line(span("run", 1), span("orphan", 3, 2, 10, 20)))
    assert nested(tracks(trace)["process"]["main"]) == ["run", "  orphan"]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    """The output depends on the input alone, compressed too."""
    file = write(tmp_path / "a.jsonl", line(span("a", 1), span("b", 2, 1, 10, 20), nv__dl__rank=0))
    for suffix in (".json", ".json.gz"):
        first, second = tmp_path / f"1{suffix}", tmp_path / f"2{suffix}"
        trace_of(file, out=first)
        trace_of(file, out=second)
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("start_ns", [-(1 << 63), -5])
def test_a_time_before_the_epoch_is_none(start_ns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A span that starts there would make Perfetto refuse the whole trace."""
    broken = {**span("broken", 2), "startTimeUnixNano": str(start_ns), "endTimeUnixNano": "0"}
    trace = trace_of(write(tmp_path / "run.jsonl", line(span("run", 1), broken)), out=tmp_path / "out.json")
    assert trace["baseTimeNanoseconds"] == BASE_NS
    assert [event["name"] for event in of_phase(trace, "X")] == ["run"]
    assert "skipped 1 span without a time" in capsys.readouterr().err


def test_spans_years_apart_keep_their_nesting(tmp_path: Path) -> None:
    """Where a double cannot hold nanoseconds, whole microseconds do, for all spans alike."""
    far = 100 * 365 * 86_400_000_000_000
    trace = one_file(
        tmp_path,
        line(span("old", 1), span("run", 2, 0, far, far + 10_900), span("step", 3, 2, far + 5_400, far + 10_900)),
    )
    old, run, step = of_phase(trace, "X")
    assert (run["ts"], run["dur"], step["ts"], step["dur"]) == (far // 1000, 10, far // 1000 + 5, 5)
    assert old["dur"] == 1
