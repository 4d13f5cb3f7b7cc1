"""Files of the PyTorch profiler that are broken, cut off, huge or something else: what is there is used."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_lens.sdk.cli import main
from nemo_lens.sdk.cli._timeline.profile.kineto_reader import KinetoReader
from support.kineto_traces import KinetoTrace
from support.otlp_lines import line, span, write
from support.timelines import loaded, of_phase

PROFILES = Path(__file__).parent / "profiles"
EVENT = '{"ph": "X", "name": "aten::mm", "ts": 1.5, "dur": 2, "pid": 1, "tid": 1}'
MIB = 1 << 20


def read(path: Path) -> tuple[list[dict[str, Any]], list[str], KinetoReader]:
    said: list[str] = []
    reader = KinetoReader(path, said.append)
    return list(reader.read()), said, reader


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "rank0.pt.trace.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return path


@pytest.mark.parametrize("path", [PROFILES / "kineto.json.gz", PROFILES / "python_export.json"], ids=lambda p: p.name)
def test_a_real_file_is_read_as_json_reads_it(path: Path) -> None:
    """The same events in the same order, fractions exact, and the facts about the run."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    whole = json.loads(text, parse_float=Decimal)
    events, said, reader = read(path)
    assert events == whole["traceEvents"]
    assert said == []
    assert reader.header["baseTimeNanoseconds"] == whole["baseTimeNanoseconds"]
    assert reader.header.get("distributedInfo") == whole.get("distributedInfo")


@given(cut=st.integers(0, 100_000))
@settings(max_examples=60, deadline=None)
def test_a_file_that_is_cut_off_gives_every_whole_event(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """A job that is killed while it writes leaves such files; the message has the file and the byte."""
    text = (PROFILES / "python_export.json").read_bytes()
    cut %= text.rindex(b"]")
    path = tmp_path_factory.mktemp("cut") / "rank0.json"
    path.write_bytes(text[:cut])
    events, said, _ = read(path)
    whole = json.loads(text, parse_float=Decimal)["traceEvents"]
    assert events == whole[: len(events)]
    started = text[:cut].count(b'{"ph":')
    assert len(events) in (started, started - 1)
    assert len(said) == 1
    if b"{" in text[:cut]:
        assert f"{path}: the file is cut off at byte " in said[0]
        assert f"{len(events)} events before it are used" in said[0]


def test_gzip_data_that_is_cut_off_gives_what_can_be_inflated(tmp_path: Path) -> None:
    """As much as the compressed data has."""
    path = tmp_path / "rank0.json.gz"
    path.write_bytes((PROFILES / "kineto.json.gz").read_bytes()[:2500])
    events, said, _ = read(path)
    assert len(events) > 50
    assert said == [said[0]]
    assert "the gzip data is cut off at byte" in said[0]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 4096])
def test_it_does_not_matter_how_the_file_is_cut_into_chunks(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number, a literal, an escape or a character of several bytes may lie across the end of a chunk."""
    from nemo_lens.sdk.cli import _byte_chunks

    text = '\ufeff{"baseTimeNanoseconds": 1234567890, "x": [true, null, -1.5e3], "traceEvents": [' + ", ".join(
        json.dumps({"ph": "X", "name": name, "ts": 1234.567, "args": {"a": [None, False, 1e-7]}}, ensure_ascii=ascii)
        for name, ascii in (("µ€😀", False), ('µ€😀\\"\n', True), ('}, {"ph": 1', True))
    )
    path = written(tmp_path, text + "]}")
    whole = json.loads(text[1:] + "]}", parse_float=Decimal)
    monkeypatch.setattr(_byte_chunks, "_READ_BYTES", step)
    events, said, reader = read(path)
    assert (events, said) == (whole["traceEvents"], [])
    assert reader.header["baseTimeNanoseconds"] == 1234567890


@pytest.mark.parametrize(
    "broken",
    [
        '{"ph": "X", "name": nan}',
        '{"ph": "X", "name": "a\\qb"}',
        '{"ph": "X" "name": "a"}',
        '{"ph": "X", "args": {"a": [1, 2}}',
        '{"ph": "X", "ts": 1e99999999999999999999}',
        "[" * 100_000 + "]" * 100_000,
    ],
    ids=["literal", "escape", "comma", "bracket", "exponent", "depth"],
)
def test_a_broken_event_is_skipped_and_named(tmp_path: Path, broken: str) -> None:
    """With the byte at which it begins; the others are used."""
    text = f'{{"a": "µ", "traceEvents": [{EVENT}, {broken}, {EVENT}, {EVENT}]}}'
    path = written(tmp_path, text)
    events, said, _ = read(path)
    # Behind brackets that close nothing the next event is found by what separates events, which may take one with it.
    assert len(events) in ((2, 3) if "[[" in broken else (3,))
    assert len(said) == 1
    assert said[0].startswith(
        f"{path}: skipped: an event at byte {len(text[: text.index(broken)].encode())} is broken: "
    )


@pytest.mark.parametrize("other", ["17", '"text"', "[1, 2]", "null"])
def test_what_is_no_event_is_skipped_and_named(tmp_path: Path, other: str) -> None:
    """JSON, but not an object."""
    path = written(tmp_path, f'{{"traceEvents": [{EVENT}, {other}, {EVENT}]}}')
    events, said, _ = read(path)
    assert len(events) == 2
    assert len(said) == 1
    assert f"{path}: skipped: at byte " in said[0]


def test_what_a_program_added_to_the_profile_may_be_broken(tmp_path: Path) -> None:
    """``add_metadata_json`` takes any text: the events and the base of their times come behind it."""
    path = written(tmp_path, f'{{"mine": {{oops, "baseTimeNanoseconds": 5000, "traceEvents": [{EVENT}]}}')
    events, said, reader = read(path)
    assert len(events) == 1
    assert reader.header == {"baseTimeNanoseconds": 5000}
    assert said == [f"{path}: broken at byte 9: Expecting property name enclosed in double quotes"]


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    """Names of kernels come from anywhere."""
    path = written(tmp_path, f'{{"traceEvents": [{EVENT}]}}'.encode().replace(b"aten", b"a\xff\xfe\x01"))
    events, said, _ = read(path)
    assert events[0]["name"].startswith("a\ufffd\ufffd\x01")
    assert said == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty: not a trace of the PyTorch profiler"),
        ("\n \n", "empty: not a trace of the PyTorch profiler"),
        ("<html>", "not JSON: not a trace of the PyTorch profiler"),
        ('{"resourceSpans": []}', "no traceEvents in it: not a trace of the PyTorch profiler"),
        ('{"traceEvents": 1}', "no traceEvents in it: not a trace of the PyTorch profiler"),
        ('{"traceEvents": []}', "no event to draw in it"),
        (f"[{EVENT}]", "its times do not count from the epoch"),
        (f'{{"traceEvents": [{EVENT}]}}', "its times do not count from the epoch"),
        ('{"traceEvents": [{"ph": "X", "ts": "a"}, {"ph": "X", "ts": -1}, {"ph": "X"}]}', "skipped 3 events without"),
        ('{"traceEvents": [{"ph": "B", "ts": 1}, {"ph": {}, "ts": 1}]}', "skipped 1 event of phase 'B'"),
        (b"\x1f\x8b\x08\x00garbage", "gzip data"),
        (b"\x1f\x8b", "gzip data is cut off"),
    ],
)
def test_a_file_that_is_none_is_said_to_be_none(
    tmp_path: Path, content: str | bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The spans are drawn all the same."""
    spans = write(tmp_path / "spans.jsonl", line(span("step", 1), nv__dl__rank=0))
    path, out = written(tmp_path, content), tmp_path / "out.json"
    assert main(["timeline", str(spans), "-o", str(out), "--with-profiler", str(path)]) == 0
    error = capsys.readouterr().err
    assert f"{path}: " in error
    assert message in error
    assert [event["name"] for event in of_phase(loaded(out), "X")] == ["step"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also a folder without profiles."""
    spans = write(tmp_path / "spans.jsonl", line(span("step", 1), nv__dl__rank=0))
    (tmp_path / "empty").mkdir()
    arguments = ["timeline", str(spans), "-o", str(tmp_path / "out.json"), "--with-profiler"]
    assert main([*arguments, str(tmp_path / "none.json"), str(tmp_path / "empty"), "x" * 300]) == 0
    error = capsys.readouterr().err
    assert f"{'x' * 300}: File name too long" in error
    assert f"{tmp_path / 'none.json'}: No such file or directory" in error
    assert f"{tmp_path / 'empty'}: no *.pt.trace.json or *.pt.trace.json.gz file" in error


@pytest.mark.parametrize(
    "change",
    [
        lambda event: event.update(ts=10**400),
        lambda event: event.update(ts="@" + "1" * 5000 + "@"),
        lambda event: event.update(dur=10**30),
        lambda event: event.update(pid=[1], tid={"a": 1}),
        lambda event: event.update(pid=10**40, tid=10**40),
        lambda event: event.update(cat=["x"], name=None),
        lambda event: event.update(name={"a": 1}, args=[1, 2]),
        lambda event: event.update(args={"big": 10**40, "text": "x" * 200_000, "deep": [[[[[[1.5]]]]]]}),
        lambda event: event.update(dur=-5),
        lambda event: event.pop("tid"),
    ],
)
def test_odd_values_make_no_traceback(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Whatever an event holds, the good one beside it is drawn and the trace is JSON."""
    spans = write(tmp_path / "spans.jsonl", line(span("step", 1), nv__dl__rank=0))
    trace = json.loads(KinetoTrace(pid=7).slice("odd", 0, 10).slice("good", 0, 10).text())
    change(next(event for event in trace["traceEvents"] if event["name"] == "odd"))
    text = json.dumps(trace).replace('"@', "").replace('@"', "")  # json writes no number of so many digits
    path, out = written(tmp_path, text), tmp_path / "out.json"
    assert main(["timeline", str(spans), "-o", str(out), "--quiet", "--with-profiler", str(path)]) == 0
    assert "good" in [event["name"] for event in of_phase(loaded(out), "X")]


@pytest.mark.timeout(150)
def test_a_huge_profile_takes_little_memory(tmp_path: Path) -> None:
    """No more than the interpreter and the temporary file's cache, whatever the size: here 60 MiB of events."""
    spans = write(tmp_path / "spans.jsonl", line(span("step", 1), nv__dl__rank=0))
    head, event, end = _template()
    count = 60 * MIB // len(event)
    path = tmp_path / "rank0.pt.trace.json"
    with path.open("w", encoding="utf-8") as file:
        file.write(head)
        for number in range(count):
            file.write(event.replace("1.000", f"{number * 10}.000", 1))
        file.write(end)
    program = (
        "import sys\nfrom nemo_lens.sdk.cli import main\ncode = main(sys.argv[1:])\n"
        # Not ru_maxrss, which begins with what the process had that started this one.
        "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM:'))); sys.exit(code)"
    )
    out = tmp_path / "out.json"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            "timeline",
            str(spans),
            "-o",
            str(out),
            "--quiet",
            "--with-profiler",
            str(path),
        ],
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    peak_mib = int(done.stdout) // 1024
    print(
        f"{count} events, {path.stat().st_size >> 20} MiB: peak {peak_mib} MiB, output {out.stat().st_size >> 20} MiB"
    )
    assert peak_mib < 200


def _template() -> tuple[str, str, str]:
    """Return what is before, one event of, and what is behind the events of a trace."""
    filling = {"Input Dims": [[64, 64]] * 8, "Input type": ["float"] * 8, "Concrete Inputs": [""] * 8}
    text = KinetoTrace(pid=7).slice("aten::addmm", 0, 5000, **filling).text()
    at = text.index('  {\n    "ph": "X"')
    end = text.index('  {\n    "ph": "i"')
    event = text[at:end]
    time = event[event.index('"ts": ') + 6 :].split(",")[0]
    return text[:at], event.replace(time, "1.000"), text[end:]
