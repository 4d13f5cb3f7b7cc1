"""Where ``nemo-lens timeline`` writes, and what it says about what it cannot read or write."""

from __future__ import annotations

import gzip
import json
import os
import pty
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_lens.sdk.cli import main
from support.otlp_lines import line, span, write
from support.span_files import write_span_files
from support.timelines import loaded, of_phase

NEMO_LENS = [sys.executable, "-m", "nemo_lens.sdk.cli"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """Return a file with one span."""
    return write(tmp_path / "run.jsonl", line(span("run", 1), nv__dl__rank=0))


def left(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def test_without_an_output_it_is_timeline_json_here(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The name and what is in it are told; nothing else is left behind."""
    assert main(["timeline", str(run_file)]) == 0
    assert capsys.readouterr().out.startswith("timeline.json: 1 process, 1 track, 1 span; ")
    assert left(Path()) == ["run.jsonl", "timeline.json"]
    assert len(of_phase(loaded(Path("timeline.json")), "X")) == 1


def test_a_name_with_gz_is_compressed(run_file: Path) -> None:
    """The content is the same as without."""
    main(["timeline", str(run_file), "-o", "a.json"])
    main(["timeline", str(run_file), "-o", "a.json.gz"])
    assert gzip.decompress(Path("a.json.gz").read_bytes()) == Path("a.json").read_bytes()


def test_a_dash_is_standard_output_and_input(run_file: Path) -> None:
    """Nothing but the trace is on standard output, so that it can be piped."""
    done = subprocess.run(
        [*NEMO_LENS, "timeline", "-", "-o", "-"],
        input=run_file.read_bytes(),
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert [event["name"] for event in of_phase(json.loads(done.stdout), "X")] == ["run"]
    assert done.stderr.startswith(b"standard output: 1 process")


def test_a_reader_that_leaves_is_no_failure(tmp_path: Path) -> None:
    """``nemo-lens timeline ... -o - | head`` ends in silence."""
    write_span_files(tmp_path, 1, 5000)
    command = f"{sys.executable} -m nemo_lens.sdk.cli timeline --quiet -o - {tmp_path}"
    shell = f"{command} | head -c 100 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True, timeout=30)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_an_earlier_trace_is_replaced_and_a_link_followed(run_file: Path) -> None:
    """The file that a link stands for is written, with the permissions of any new file."""
    Path("store").mkdir()
    Path("store/real.json").write_text("old")
    Path("link.json").symlink_to("store/real.json")
    assert main(["timeline", str(run_file), "-o", "link.json", "--quiet"]) == 0
    assert Path("link.json").is_symlink()
    assert loaded(Path("store/real.json"))["traceEvents"]
    umask = os.umask(0o022)
    os.umask(umask)
    assert Path("store/real.json").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_name_of_a_pipe_is_written_into_the_pipe(name: str, run_file: Path) -> None:
    """As a shell's ``-o >(upload)`` names one; what there is to say does not get into the trace."""
    command = [*NEMO_LENS, "timeline", str(run_file), "-o", name]
    done = subprocess.run(command, capture_output=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["traceEvents"]
    assert done.stderr.startswith(f"{name}: 1 process, ".encode())


def test_the_unfinished_file_of_another_process_is_left_alone(run_file: Path) -> None:
    """In containers, and on several hosts, process ids are the same: one was killed, another still writes."""
    other = Path(f".a.json.{os.getpid()}.part")
    other.write_text("other")
    assert main(["timeline", str(run_file), "-o", "a.json"]) == 0
    assert loaded(Path("a.json"))["traceEvents"]
    assert left(Path()) == [other.name, "a.json", "run.jsonl"]
    assert other.read_text() == "other"


def test_a_folder_whose_name_is_no_text_is_a_folder(run_file: Path) -> None:
    """Names are bytes, and in a locale without Unicode any letter with an accent is such a name."""
    folder = Path(os.fsdecode(b"caf\xe9"))
    folder.mkdir()
    assert main(["timeline", str(run_file), "-o", str(folder / "a.json")]) == 0
    assert left(folder) == ["a.json"]


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("missing/a.json", "missing/a.json: the folder 'missing' does not exist"),
        (".", "'.' is a folder: -o takes a file"),
        ("", "'' is a folder: -o takes a file"),
        ("run.jsonl", "run.jsonl is one of the files that are read: choose another name with -o"),
        ("same.jsonl", "same.jsonl is one of the files that are read: choose another name with -o"),
        ("run.jsonl/a.json", "run.jsonl/a.json: the folder 'run.jsonl' does not exist"),
        ("x" * 300, f"{'x' * 300} cannot be written: File name too long"),
        ("/dev/full", "/dev/full cannot be written: No space left on device"),
    ],
)
def test_an_output_that_cannot_be_is_one_clear_line(
    out: str, said: str, run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The input stays as it was, and no half file is left."""
    Path("same.jsonl").symlink_to("run.jsonl")
    before = run_file.read_bytes()
    assert main(["timeline", str(run_file), "-o", out]) == 1
    assert capsys.readouterr() == ("", f"nemo-lens timeline: {said}\n")
    assert run_file.read_bytes() == before
    assert left(Path()) == ["run.jsonl", "same.jsonl"]


@pytest.mark.parametrize(
    ("limit", "said"),
    [(50_000, "the temporary file in"), (400_000, "out.json cannot be written: File too large")],
    ids=["while reading", "while writing"],
)
def test_a_full_disk_is_one_clear_line(limit: int, said: str, tmp_path: Path) -> None:
    """Whichever file meets the limit, the earlier trace stays and nothing else is left."""
    # The resource is written to the trace alone, for the first span of each thread.
    own = {f"a{n}": "x" * 10_000 for n in range(50)}
    write(tmp_path / "run.jsonl", line(*(span("step", n, 0, n, n + 1) for n in range(1, 1000)), nv__dl__rank=0, **own))
    Path("out.json").write_text("old")

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        [*NEMO_LENS, "timeline", "run.jsonl", "-o", "out.json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        preexec_fn=limited,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("nemo-lens timeline: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert Path("out.json").read_text() == "old"
    assert left(Path()) == ["out.json", "run.jsonl"]


def test_what_cannot_be_read_is_told_and_the_rest_is_drawn(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Broken lines, a cut file, an empty one, one that is missing: file and line each, and exit code 0."""
    good = line(span("good", 2), nv__dl__rank=1)
    write(Path("broken.jsonl"), "{", "[]", '{"a": 1}', good, '{"resourceSpans": 7}', "\x00\xff")
    Path("cut.jsonl").write_text(line(span("also good", 3)) + "\n" + good[:-30])
    Path("cut.jsonl.gz").write_bytes(gzip.compress(f"{line(span('zipped', 4))}\n".encode() * 3)[:-12])
    Path("empty.jsonl").touch()
    Path("empty.jsonl.gz").write_bytes(gzip.compress(b""))
    write(Path("half.jsonl"), line({**span("bad", 5), "startTimeUnixNano": "soon"}, span("next to bad", 6)))
    write(Path("deep.jsonl"), '{"resourceSpans":' + "[" * 100_000)
    assert main(["timeline", ".", "missing.jsonl", "-o", "out.json", "--quiet"]) == 0
    said = capsys.readouterr().err.splitlines()
    for place in (
        "broken.jsonl:1: skipped: not JSON",
        "broken.jsonl:2: skipped: not an OTLP message",
        "broken.jsonl:3: skipped: not an OTLP message",
        "broken.jsonl:5: skipped: resourceSpans is not a list",
        "broken.jsonl:6: skipped: not JSON",
        "cut.jsonl:2: skipped: not JSON",
        "cut.jsonl.gz: the gzip data is cut off",
        "half.jsonl:1: skipped: span 'bad': startTimeUnixNano is not an integer: 'soon'",
        "deep.jsonl:1: skipped: not JSON",
        "missing.jsonl: No such file or directory",
    ):
        assert any(text.startswith(f"nemo-lens timeline: {place}") for text in said), (place, said)
    names = {event["name"] for event in of_phase(loaded(Path("out.json")), "X")}
    assert {"good", "also good", "next to bad", "run"} <= names


def test_nothing_to_draw_is_exit_code_1_and_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty input leaves an earlier trace alone."""
    Path("empty.jsonl").touch()
    Path("out.json").write_text("old")
    assert main(["timeline", "empty.jsonl", "-o", "out.json"]) == 1
    assert "no span" in capsys.readouterr().err
    assert Path("out.json").read_text() == "old"


def test_wrong_arguments_are_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """No file is a wrong use, and the usage is shown."""
    assert main(["timeline"]) == 2
    assert "usage: nemo-lens timeline" in capsys.readouterr().err


def test_a_huge_span_is_cut_to_what_a_viewer_can_show(run_file: Path) -> None:
    """A megabyte in an attribute, and thousands of events, do not make a trace that nobody can open."""
    events = [{"name": "e", "timeUnixNano": "1"}] * 3000
    write(run_file, line(span("huge", 1, attributes={"a": "x" * 5_000_000, "b": ["y" * 1000] * 5000}, events=events)))
    assert main(["timeline", str(run_file), "-o", "out.json", "--quiet"]) == 0
    [huge] = of_phase(loaded(Path("out.json")), "X")
    assert len(json.dumps(huge)) < 400_000
    assert len(huge["args"]["events"]) == 257


def test_progress_is_a_bar_on_a_terminal_that_goes_away(tmp_path: Path) -> None:
    """One line rewritten, gone at the end; ``--quiet`` shows none."""
    write_span_files(tmp_path, 2, 60_000)

    def shown(*options: str) -> str:
        primary, secondary = pty.openpty()
        command = [*NEMO_LENS, "timeline", ".", "-o", "out.json", *options]
        process = subprocess.Popen(
            command, stderr=secondary, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"}
        )
        os.close(secondary)
        text = b""
        with open(primary, "rb", buffering=0) as screen:
            try:
                while piece := screen.read(65536):
                    text += piece
            except OSError:  # Linux says so when the other end is closed
                pass
        assert process.wait(30) == 0
        return text.decode()

    text = shown()
    assert "\n" not in text
    assert "nemo-lens timeline: reading 4 files [" in text
    assert "drawing [" in text
    assert text.endswith("\r\x1b[K")
    assert shown("--quiet") == ""
