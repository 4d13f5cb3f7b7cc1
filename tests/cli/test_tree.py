"""``nemo-lens tree`` over files laid out by hand, as any OTLP JSON lines writer may have written them."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nemo_lens.sdk.cli import main

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c"
SECOND = 1_000_000_000
BASE = 1_700_000_000 * SECOND


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": value}


def _attributes(mapping: dict[str, object]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in mapping.items()]


def span(
    name: str, number: int, parent: int = 0, start: float = 0, seconds: float = 1, **fields: Any
) -> dict[str, Any]:
    """Return a span whose id is ``number`` and that starts ``start`` seconds into the run."""
    begin = BASE + round(start * SECOND)
    made: dict[str, Any] = {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(begin),
        "endTimeUnixNano": str(begin + round(seconds * SECOND)),
        **fields,
    }
    if parent:
        made["parentSpanId"] = f"{parent:016x}"
    return made


def line(*spans: dict[str, Any], **resource: object) -> str:
    """Return one OTLP JSON line with these spans; ``nv__dl__rank=1`` is the resource attribute ``nv.dl.rank``."""
    attributes = {key.replace("__", "."): value for key, value in resource.items()}
    group = {"scope": {"name": "nemo.lens"}, "spans": list(spans)}
    return json.dumps({"resourceSpans": [{"resource": {"attributes": _attributes(attributes)}, "scopeSpans": [group]}]})


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{text}\n" for text in lines), encoding="utf-8")
    return path


def shown(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[list[str], str]:
    """Run ``nemo-lens tree`` and return the lines of standard output, and standard error."""
    assert main(["tree", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err


def names(lines: list[str]) -> list[str]:
    """Return the first word after the drawing of each line."""
    return [text.lstrip(" │├└─").split(" ")[0] for text in lines if text]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_the_spans_of_all_ranks_form_one_tree_sorted_by_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of several processes are merged: children under parents of other files, siblings by their start."""
    launcher = write(tmp_path / "launcher.jsonl", line(span("run", 1, seconds=10), service__name="demo"))
    rank0 = write(
        tmp_path / "rank0.jsonl",
        line(span("late", 3, 1, start=5), nv__dl__rank=0, nv__dl__role="trainer", process__pid=7),
    )
    rank1 = write(tmp_path / "rank1.jsonl", line(span("early", 2, 1, start=1), nv__dl__rank=1))
    lines, err = shown(capsys, rank0, rank1, launcher)
    assert lines == [
        f"trace {TRACE}  demo, 3 spans, 3 processes, 10.0 s",
        "run         10.0 s  demo",
        "├─ early    1.00 s  rank 1",
        "└─ late     1.00 s  rank 0 trainer pid 7",
    ]
    assert err == ""


def test_traces_are_sorted_by_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trace that began first is shown first, whatever the order in the file."""
    file = write(
        tmp_path / "a.jsonl",
        line(span("second", 1, start=9), span("first", 1, start=2, traceId=OTHER_TRACE)),
    )
    lines, _ = shown(capsys, file)
    assert [text.split()[1] for text in lines if text.startswith("trace")] == [OTHER_TRACE, TRACE]


def test_gzip_is_recognised_by_content_in_several_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gzip file needs no .gz in its name, and each flush of a writer may close a member."""
    file = tmp_path / "spans.jsonl"
    file.write_bytes(b"".join(gzip.compress(f"{line(span(f'step{n}', n))}\n".encode()) for n in (1, 2, 3)))
    plain = write(tmp_path / "plain.jsonl.gz", line(span("step4", 4)))
    lines, err = shown(capsys, file, plain)
    assert names(lines) == ["trace", "step1", "step2", "step3", "step4"]
    assert err == ""


def test_truncated_gzip_gives_what_came_before_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file cut in the middle of a member keeps the lines before the cut, and the cut is reported once."""
    whole = gzip.compress(f"{line(span('kept', 1))}\n".encode())
    cut = gzip.compress(f"{line(*(span(os.urandom(8).hex(), n) for n in range(2, 50)))}\n".encode())
    file = tmp_path / "spans.jsonl.gz"
    file.write_bytes(whole + cut[: len(cut) // 2])
    lines, err = shown(capsys, file)
    assert names(lines) == ["trace", "kept"]
    assert err.splitlines() == [
        f"nemo-lens tree: {file}: the gzip data is cut off after line 1; what came before is used"
    ]


def test_corrupt_gzip_gives_what_came_before_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Garbage after a good member is reported and hides nothing that came before."""
    file = tmp_path / "spans.jsonl.gz"
    file.write_bytes(gzip.compress(f"{line(span('kept', 1))}\n".encode()) + b"garbage")
    lines, err = shown(capsys, file)
    assert names(lines) == ["trace", "kept"]
    assert f"{file}: corrupt gzip data" in err


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("{nonsense", "not JSON"),
        ("[1]", "not an OTLP message"),
        ('{"some": "object"}', "not an OTLP message"),
        ('{"resourceSpans": 5}', "resourceSpans is not a list of objects"),
        ('{"resourceSpans": [{"scopeSpans": [7]}]}', "scopeSpans is not a list of objects"),
        (line({"name": "x", "spanId": "1" * 16}), "span 'x': traceId or spanId is missing"),
        (line(span("x", 1, startTimeUnixNano="soon")), "span 'x': startTimeUnixNano is not an integer: 'soon'"),
        (line(span("x", 1, status={"code": []})), "span 'x': status.code is not an integer"),
        (line(span("x", 1, links=["y"])), "span 'x': links is not a list of objects"),
        ("[" * 100_000, "not JSON"),
        ("\ufeff\x00\x01", "not JSON"),
    ],
)
def test_a_broken_line_is_reported_with_its_place_and_skipped(
    broken: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report names file and line; the lines before and after are used."""
    file = write(tmp_path / "a.jsonl", line(span("before", 101)), "", broken, line(span("after", 102)))
    lines, err = shown(capsys, file)
    assert names(lines) == ["trace", "after", "before"]
    assert err.startswith(f"nemo-lens tree: {file}:3: skipped: ")
    assert why in err
    assert len(err.splitlines()) == 1


def test_one_bad_span_does_not_take_the_others_of_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line is a whole batch: its good spans are used."""
    file = write(tmp_path / "a.jsonl", line(span("bad", 1, startTimeUnixNano={}), span("good", 2)))
    lines, err = shown(capsys, file)
    assert names(lines) == ["trace", "good"]
    assert f"{file}:1: skipped: span 'bad'" in err


def test_a_line_that_the_writer_did_not_finish_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line of a killed process is reported as cut, not as nonsense."""
    file = tmp_path / "a.jsonl"
    file.write_text(line(span("whole", 1)) + "\n" + line(span("cut", 2))[:50])
    lines, err = shown(capsys, file)
    assert names(lines) == ["trace", "whole"]
    assert f"{file}:2: skipped: not JSON" in err
    assert "the file ends in the middle of a line" in err


def test_thousands_of_broken_lines_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of another kind does not flood the terminal."""
    file = write(tmp_path / "a.jsonl", *["text"] * 5000, line(span("good", 1)))
    lines, err = shown(capsys, file)
    assert names(lines) == ["trace", "good"]
    assert len(err.splitlines()) == 21
    assert err.splitlines()[-1] == f"nemo-lens tree: {file}: 4980 more lines like these skipped"


def test_other_signals_are_skipped_with_a_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Metric and log lines beside spans are no fault."""
    file = write(
        tmp_path / "a.jsonl",
        '{"resourceMetrics": []}',
        '{"resourceMetrics": []}',
        '{"resourceLogs": []}',
        line(span("s", 1)),
    )
    _, err = shown(capsys, file)
    assert err == "nemo-lens tree: skipped 2 metric lines, 1 log line\n"


def test_a_directory_stands_for_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Plain, gzip and forked children's files are found, also below; others are not; none is read twice."""
    write(tmp_path / "a.jsonl", line(span("plain", 1)))
    write(tmp_path / "a.jsonl.4711", line(span("forked", 2)))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "b.jsonl.gz").write_bytes(gzip.compress(line(span("zipped", 3)).encode()))
    write(tmp_path / "notes.txt", "not spans")
    lines, err = shown(capsys, tmp_path, tmp_path / "a.jsonl")
    assert names(lines) == ["trace", "forked", "plain", "zipped"]
    assert err == ""


@pytest.mark.parametrize("content", [None, "", "nonsense\n", '{"resourceMetrics": []}\n'])
def test_nothing_to_show_is_a_failure(content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing, empty, broken or span-less file alone gives exit code 1 and says so."""
    file = tmp_path / "a.jsonl"
    if content is not None:
        file.write_text(content)
    lines, err = shown(capsys, file, code=1)
    assert lines == []
    assert err.splitlines()[-1] == "nemo-lens tree: no span found in 1 file"
    if content is None:
        assert f"{file}: No such file or directory" in err


def test_a_missing_file_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What can be read is shown, with exit code 0."""
    lines, err = shown(capsys, tmp_path / "missing.jsonl", write(tmp_path / "a.jsonl", line(span("s", 1))))
    assert names(lines) == ["trace", "s"]
    assert "missing.jsonl: No such file or directory" in err


def test_an_empty_directory_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says what a directory is searched for."""
    _, err = shown(capsys, tmp_path, code=1)
    assert "no *.jsonl or *.jsonl.gz file in this directory" in err


def test_errors_and_marks_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status with its description, interruption, truncation with its reason, and a missing parent."""
    event = {"name": "nemo.span.truncated", "attributes": _attributes({"nemo.span.truncated.reason": "shutdown"})}
    file = write(
        tmp_path / "a.jsonl",
        line(
            span("failed", 1, status={"code": 2, "message": "ValueError: loss is nan"}),
            span("named", 2, status={"code": "STATUS_CODE_ERROR"}),
            span("stopped", 3, attributes=_attributes({"nemo.span.interrupted": "KeyboardInterrupt"})),
            span("open", 4, attributes=_attributes({"nemo.span.truncated": True}), events=[event]),
            span("orphan", 5, parent=99),
        ),
    )
    lines, _ = shown(capsys, file)
    assert lines[0].endswith("5 spans, 1 process, 1.00 s, 2 errors")
    text = dict(zip(names(lines), lines, strict=True))
    assert text["failed"].endswith("ERROR ValueError: loss is nan")
    assert text["named"].endswith("ERROR")
    assert text["stopped"].endswith("interrupted by KeyboardInterrupt")
    assert text["open"].endswith("truncated (shutdown)")
    assert text["orphan"].endswith("parent 0000000000000063 is not in the input")


def test_links_name_their_target_when_it_is_in_the_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A link in the trace names the span, one to another trace the trace too, one that leads outside its ids."""
    links = [
        {"traceId": TRACE, "spanId": f"{1:016x}"},
        {"traceId": OTHER_TRACE, "spanId": f"{2:016X}"},
        {"traceId": OTHER_TRACE, "spanId": f"{9:016x}"},
    ]
    rank0 = write(
        tmp_path / "a.jsonl", line(span("send", 1), span("other", 2, traceId=OTHER_TRACE, start=5), nv__dl__rank=0)
    )
    rank1 = write(tmp_path / "b.jsonl", line(span("receive", 3, 1, links=links), nv__dl__rank=1))
    lines, _ = shown(capsys, rank0, rank1)
    assert [text.strip() for text in lines if "→" in text] == [
        "→ link to send (rank 0)",
        f"→ link to trace {OTHER_TRACE} / other (rank 0)",
        f"→ link to span {9:016x} of trace {OTHER_TRACE}, not in the input",
    ]


def test_attributes_and_events_are_shown_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--attributes`` shows them below the span; a stack trace stays in the file."""
    event = {
        "name": "exception",
        "timeUnixNano": str(BASE + SECOND // 2),
        "attributes": _attributes({"exception.type": "ValueError", "exception.stacktrace": "Traceback ..."}),
    }
    attributes = [
        *_attributes({"dl.iteration": 3, "on": True, "shape": [2, 3], "text": "two\nlines"}),
        {"key": "loss", "value": {"doubleValue": "NaN"}},
        {"key": "map", "value": {"kvlistValue": {"values": _attributes({"a": 1})}}},
    ]
    file = write(tmp_path / "a.jsonl", line(span("s", 1, attributes=attributes, events=[event])))
    plain, _ = shown(capsys, file)
    assert len(plain) == 2
    lines, _ = shown(capsys, "--attributes", file)
    assert [text.strip() for text in lines[2:]] == [
        "dl.iteration = 3",
        "on = true",
        "shape = [2, 3]",
        r"text = two\nlines",
        "loss = nan",
        "map = {'a': 1}",
        "event exception at +500 ms",
        "exception.type = ValueError",
    ]


def test_parents_in_a_circle_are_shown_once_and_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A circle is opened at its earliest span; what hangs below it and a span that is its own parent are shown too."""
    file = write(
        tmp_path / "a.jsonl",
        line(
            span("below", 5, 2, start=0),
            span("b", 2, 1, start=2),
            span("c", 3, 2, start=3),
            span("a", 1, 3, start=1),
            span("self", 4, 4, start=9),
        ),
    )
    lines, _ = shown(capsys, file)
    assert names(lines) == ["trace", "a", "b", "below", "c", "self"]
    assert [name for name, text in zip(names(lines), lines, strict=True) if "form a circle" in text] == ["a", "self"]


def test_a_span_read_twice_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy of a file adds nothing; two different spans with one id are both shown, and marked."""
    first = write(tmp_path / "a.jsonl", line(span("s", 1)))
    copy = write(tmp_path / "b.jsonl", line(span("s", 1)), line(span("twin", 1, start=1)))
    lines, err = shown(capsys, first, copy)
    assert names(lines) == ["trace", "s", "twin"]
    assert lines[2].endswith("another span has the same id")
    assert err == "nemo-lens tree: skipped 1 span read twice\n"


def test_a_deep_trace_is_shown_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five thousand levels exceed no recursion limit, and the drawing stays narrow: the level is told by number."""
    file = write(tmp_path / "a.jsonl", line(*(span(f"s{n}", n, n - 1, start=n / 1e6) for n in range(1, 5001))))
    lines, _ = shown(capsys, file)
    assert len(lines) == 5001
    assert max(map(len, lines)) < 200
    assert lines[-1].startswith("(4975)")


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 s"),
        (999, "999 ns"),
        (1_500, "1.50 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (12_345_678, "12.3 ms"),
        (999_600_000, "1.00 s"),
        (59_940_000_000, "59.9 s"),
        (59_990_000_000, "1m 00s"),
        (3_723_000_000_000, "1h 02m"),
        (180_000_000_000_000, "2d 02h"),
        (-1_500_000, "-1.50 ms"),
    ],
)
def test_durations_have_the_unit_a_person_would_use(
    nanoseconds: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three digits, rounded into the next unit and never to ``1000 ms``."""
    file = write(tmp_path / "a.jsonl", line(span("s", 1, endTimeUnixNano=str(BASE + nanoseconds))))
    lines, _ = shown(capsys, file)
    assert lines[1].split("s", 1)[1].strip() == text


def test_a_span_without_an_end_has_no_duration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown end is said, not computed with, and does not spoil the length of the trace."""
    file = write(tmp_path / "a.jsonl", line(span("open", 1, endTimeUnixNano="0"), span("done", 2, 1)))
    lines, _ = shown(capsys, file)
    assert lines[0].endswith("1.00 s")
    assert lines[1].split() == ["open", "?", "no", "end"]


def test_names_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences and line ends of names, messages and ranks are shown as text."""
    file = write(
        tmp_path / "a.jsonl",
        line(span("a\x1b[2Jb\nc", 1, status={"code": 2, "message": "\x1b]0;x\x07"}), nv__dl__role="\x9b"),
    )
    lines, _ = shown(capsys, file)
    assert len(lines) == 2
    assert lines[1].startswith(r"a\x1b[2Jb\nc")
    assert all(text.isprintable() for text in lines)


def test_long_names_are_cut_to_the_width(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a width, lines fit it, also with wide characters; an error that does not fit goes below, whole."""
    message = "RuntimeError: " + "x" * 60
    file = write(
        tmp_path / "a.jsonl",
        line(span("n" * 300, 1), span("漢" * 300, 2, 1, status={"code": 2, "message": message}), nv__dl__rank=3),
    )
    monkeypatch.setenv("COLUMNS", "70")
    lines, _ = shown(capsys, file)
    assert len(lines[1]) <= 70
    assert "…" in lines[1]
    assert len(lines[2]) + lines[2].count("漢") <= 70
    assert lines[2].endswith("rank 3")
    assert lines[3].strip() == f"ERROR {message}"
    monkeypatch.delenv("COLUMNS")
    lines, _ = shown(capsys, file)
    assert "n" * 300 in lines[1]


def _nemo_lens(*arguments: object, **environ: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "nemo_lens.sdk.cli", *map(str, arguments)],
        capture_output=True,
        env={**os.environ, **environ},
        timeout=30,
        check=False,
    )


def test_ascii_is_drawn_where_the_encoding_has_no_lines(tmp_path: Path) -> None:
    """An ASCII stream gets ASCII drawing and escapes for what it lacks, and no traceback."""
    file = write(tmp_path / "a.jsonl", line(span("é", 1), span("b", 2, 1), span("c", 3, 1, seconds=1e-5)))
    done = _nemo_lens("tree", file, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode("ascii").splitlines()
    assert lines[1].startswith(r"\xe9")
    assert [text[:4] for text in lines[2:]] == ["|- b", "`- c"]
    assert "10.0 us" in lines[3]


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colour_is_for_terminals_that_want_it(environ: dict[str, str], coloured: bool, tmp_path: Path) -> None:
    """On a terminal the error is coloured, unless NO_COLOR or a dumb terminal says otherwise."""
    file = write(tmp_path / "a.jsonl", line(span("s", 1, status={"code": 2, "message": "boom"})))
    child = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    primary, secondary = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "nemo_lens.sdk.cli", "tree", str(file)],
            stdout=secondary,
            env={**child, "TERM": "xterm", **environ},
        )
        assert process.wait(timeout=30) == 0
        output = os.read(primary, 65536).decode()
    finally:
        os.close(primary)
        os.close(secondary)
    assert "ERROR boom" in output
    assert ("\x1b[1;31mERROR boom\x1b[0m" in output) is coloured
    assert ("\x1b" in output) is coloured


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """``nemo-lens tree FILE | head`` ends without a traceback."""
    file = write(tmp_path / "a.jsonl", line(*(span(f"step {n}", n) for n in range(1, 20_000))))
    process = subprocess.Popen(
        [sys.executable, "-m", "nemo_lens.sdk.cli", "tree", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) == 0
    assert err == b""


def test_standard_input_is_read_for_a_dash(tmp_path: Path) -> None:
    """``-`` reads what is piped in, gzip too."""
    done = subprocess.run(
        [sys.executable, "-m", "nemo_lens.sdk.cli", "tree", "-"],
        input=gzip.compress(line(span("piped", 1)).encode()),
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert b"piped" in done.stdout
