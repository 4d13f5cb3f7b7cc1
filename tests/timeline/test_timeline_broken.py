"""``nemo-lens timeline`` over inputs, disks and signals that go wrong: the rest is drawn, nothing is left behind."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_lens.sdk.cli._otlp_reader import OtlpReader
from support.otlp_lines import line, span, write
from support.span_files import write_span_files
from support.timelines import loaded, of_phase

MIB = 1 << 20
# A whole interpreter with what the command imports, and what it may hold of the input at a time.
_MEMORY_MIB = 300
_COMMAND = [sys.executable, "-m", "nemo_lens.sdk.cli", "timeline"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder to read and write in; temporary files go to ``tmp`` beside it, and none may be left."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work").mkdir()
    yield tmp_path / "work"
    assert os.listdir(tmp_path / "tmp") == []
    assert [name for name in os.listdir(tmp_path / "work") if name.startswith(".")] == []


def environ(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder.parent / "tmp")}


def timeline(folder: Path, *arguments: object, code: int = 0, **options: Any) -> list[str]:
    """Run the command in ``folder`` and return the lines on standard error, which are no traceback."""
    done = subprocess.run(
        [*_COMMAND, *map(str, arguments)],
        cwd=folder,
        env=environ(folder),
        capture_output=True,
        timeout=100,
        check=False,
        **options,
    )
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, [text for text in lines if "Traceback" in text]) == (code, []), done.stderr.decode()
    assert all(text.startswith("nemo-lens") for text in lines)
    return [text.removeprefix("nemo-lens timeline: ") for text in lines]


def names(folder: Path, out: str = "timeline.json") -> list[str]:
    """Return the names of the spans that were drawn."""
    return sorted(event["name"] for event in of_phase(loaded(folder / out), "X"))


def random_bytes(size: int) -> bytes:
    return random.Random(7).randbytes(size)


_KEPT = gzip.compress(f"{line(span('kept', 1))}\n".encode())
_CUT = gzip.compress(random_bytes(5000).hex().encode())[:3000]

BROKEN = {
    "empty": (b"", None),
    "blank lines": (b"\n" * 100_000, None),
    "zeros": (bytes(100_000), "bad:1: skipped: not JSON"),
    "cut gzip": (_KEPT + _CUT, "bad: the gzip data is cut off after line 1; what came before is used"),
    "corrupt gzip": (_KEPT + b"garbage" * 1000, "bad: corrupt gzip data"),
    "only a gzip header": (_KEPT[:10], "bad: the gzip data is cut off after line 0"),
    "binary": (random_bytes(200_000), "bad:1: skipped: not JSON"),
    "another compression": (b"\x28\xb5\x2f\xfd" + random_bytes(5000), "bad:1: skipped: not JSON"),
    "cut in a line": (line(span("kept", 1)).encode()[:-9], "bad:1: skipped: not JSON: "),
    "a trace of another kind": (b'{"traceEvents": []}\n', "bad:1: skipped: not an OTLP message"),
    "indented JSON": (json.dumps(json.loads(line(span("x", 1))), indent=1).encode(), "bad:1: skipped: not JSON"),
    "deep": (b"[" * 1_000_000, "bad:1: skipped: not JSON"),
    "deep attribute": (
        line(span("x", 1, attributes=[{"key": "k", "value": "DEEP"}]))
        .replace('"DEEP"', '{"arrayValue":{"values":[' * 100 + "{}" + "]}}" * 100)
        .encode(),
        None,
    ),
    "a number without an end": (b'{"resourceSpans": ' + b"9" * 100_000 + b"}\n", "bad:1: skipped: "),
    "times beyond any clock": (
        line(span("x", 1, startTimeUnixNano=str(1 << 64))).encode(),
        "bad:1: skipped: span 'x': startTimeUnixNano is not an integer: '18446744073709551616'",
    ),
    "a control sequence": (
        line(span("\x1b[2J\x07", 1, startTimeUnixNano="\x1b[2J")).encode(),
        "bad:1: skipped: span '\\x1b[2J\\x07': startTimeUnixNano is not an integer: '\\x1b[2J'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_does_not_hide_the_others(case: str, folder: Path) -> None:
    """What is wrong is said with file and line, in a few lines whatever its size, and the other files are drawn."""
    content, why = BROKEN[case]
    (folder / "bad").write_bytes(content)
    write(folder / "good", line(span("good", 99)))
    reports = timeline(folder, "bad", "good")
    assert "good" in names(folder)
    assert len(reports) <= 22
    if why is None:
        assert reports == []
    else:
        assert reports[0].startswith(why)
        assert all(len(text) < 400 and text.isprintable() for text in reports)


@pytest.mark.parametrize("case", ["empty", "binary", "cut in a line"])
def test_nothing_to_draw_is_a_failure(case: str, folder: Path) -> None:
    """When no file has anything to draw, the command fails, says so last, and leaves what was there before."""
    (folder / "bad").write_bytes(BROKEN[case][0])
    (folder / "timeline.json").write_text("before")
    reports = timeline(folder, "bad", code=1)
    assert reports[-1] == "no span found in 1 file"
    assert (folder / "timeline.json").read_text() == "before"


@pytest.mark.timeout(120)
def test_a_million_broken_lines_are_counted(folder: Path) -> None:
    """Twenty are told one by one, the rest in one line, and the good line among them is drawn."""
    broken = "nonsense\n" * 500_000
    (folder / "bad").write_text(f"{broken}{line(span('good', 1))}\n{broken}")
    reports = timeline(folder, "bad")
    assert len(reports) == 21
    assert reports[0].startswith("bad:1: skipped: not JSON")
    assert reports[-1] == "bad: 999980 more lines like these skipped"
    assert names(folder) == ["good"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_line_of_a_hundred_megabytes_is_skipped_in_bounded_memory(compressed: bool, folder: Path) -> None:
    """The line is not kept in memory, whatever its content, and the lines around it are drawn."""
    before, after = (f"{line(span(name, number))}\n".encode() for name, number in (("before", 1), ("after", 2)))
    with (folder / "bad").open("wb") as file:
        if compressed:
            file.write(gzip.compress(before + b'"%b"\n' % bytes(100 * MIB) + after, 1))
        else:
            file.write(before)
            file.seek(100 * MIB, os.SEEK_CUR)
            file.write(b"\n" + after)
    program = (
        # Not ru_maxrss, which begins with what the process had that started this one.
        "import sys; from nemo_lens.sdk.cli import main; code = main(sys.argv[1:]);"
        "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM:'))); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "timeline", "bad"],
        cwd=folder,
        env=environ(folder),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stderr == "nemo-lens timeline: bad:2: skipped: not JSON: longer than 64 MiB\n"
    assert names(folder) == ["after", "before"]
    assert int(done.stdout.split()[-1]) / 1024 < _MEMORY_MIB


def test_half_a_surrogate_is_replaced(folder: Path) -> None:
    """Half a character, which JSON can spell and no file can hold, takes nothing with it; whole ones stay."""
    half = span("half \ud83d", 1, attributes={"\udfff": "\ud800", "whole": "\U0001f525"})
    raw = line(span("raw HERE", 2)).encode().replace(b"HERE", b"\xed\xa0\x80")
    (folder / "in").write_bytes(line(half).encode() + b"\n" + raw + b"\n")
    assert timeline(folder, "in") == []
    first, second = of_phase(loaded(folder / "timeline.json"), "X")
    assert sorted((first["name"], second["name"])) == ["half ?", "raw ?"]
    arguments = first["args"] | second["args"]
    assert (arguments["?"], arguments["whole"]) == ("?", "\U0001f525")


def test_files_that_cannot_be_opened_are_reported(folder: Path) -> None:
    """A missing file, a socket, links in a circle and an impossible name are named with the system's reason."""
    write(folder / "good", line(span("good", 1)))
    (folder / "circle").symlink_to("circle")
    (folder / "odd\x1b[2J").mkdir()
    too_long = "x" * 5000
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
        reports = timeline(folder, "missing", "socket", "circle", too_long, "odd\x1b[2J", "good")
    assert reports == [
        "odd\\x1b[2J: no *.jsonl or *.jsonl.gz file in this directory",
        "missing: No such file or directory",
        "socket: No such device or address",
        "circle: Too many levels of symbolic links",
        f"{too_long}: File name too long",
    ]
    assert names(folder) == ["good"]


def test_a_file_that_may_not_be_read_is_reported(folder: Path) -> None:
    """A file of another user does not hide one's own."""
    write(folder / "good", line(span("good", 1)))
    write(folder / "secret", line(span("secret", 2))).chmod(0)
    if os.access(folder / "secret", os.R_OK):
        pytest.skip("this user may read everything")
    assert timeline(folder, "secret", "good") == ["secret: Permission denied"]
    assert names(folder) == ["good"]


def test_a_file_that_grows_is_read_as_far_as_it_was(folder: Path) -> None:
    """A running job that writes faster than one reads does not keep the command from ending."""
    text = line(*(span(f"step {number}", number) for number in range(1, 1001)))
    file = write(folder / "grows", text, text)
    reader = OtlpReader(pytest.fail)
    with file.open("a") as writer:
        for count, _ in enumerate(reader.read([file])):
            if count % 500 == 0:
                writer.write(f"{text}\n")
                writer.flush()
            assert count < 5000
    assert reader.spans == 2000


@pytest.mark.parametrize("compressed", [False, True])
def test_pipes_are_read_to_their_end(compressed: bool, folder: Path) -> None:
    """Named pipes and the standard input are files like others, read together."""
    texts = [f"{line(span(name, number))}\n".encode() for name, number in (("piped", 1), ("named", 2))]
    piped, named = (gzip.compress(text) if compressed else text for text in texts)
    os.mkfifo(folder / "pipe")
    writer = threading.Thread(target=(folder / "pipe").write_bytes, args=(named,))
    writer.start()
    assert timeline(folder, "-", "pipe", input=piped) == []
    writer.join()
    assert names(folder) == ["named", "piped"]


def _limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))


def test_a_temporary_file_that_cannot_grow_is_a_clear_error(folder: Path) -> None:
    """A quota ends the command with one line that names the folder and the way out."""
    files = write_span_files(folder, 2, 12_000)
    (report,) = timeline(folder, *files.paths, code=1, preexec_fn=_limit_files)
    assert str(folder.parent / "tmp") in report
    assert "TMPDIR" in report
    assert not (folder / "timeline.json").exists()


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_full_disk_under_tmpdir_is_a_clear_error(folder: Path) -> None:
    """A small file system in memory, as many nodes have for /tmp, is named, and so is the way out."""
    files = write_span_files(folder, 2, 12_000)
    small = folder / "small"
    small.mkdir()
    script = 'mount -t tmpfs -o size=1m none "$TMPDIR" && "$@"; code=$?; ls -A "$TMPDIR"; exit $code'
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    env = {**environ(folder), "TMPDIR": str(small)}
    if subprocess.run([*inside, "true"], env=env, capture_output=True, check=False, timeout=30).returncode:
        pytest.skip("this user may not mount")
    done = subprocess.run(
        [*inside, *_COMMAND, *map(str, files.paths)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (report,) = done.stderr.splitlines()
    assert report.startswith(f"nemo-lens timeline: the temporary file in {small} cannot be written")
    assert "TMPDIR" in report


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_output_is_a_clear_error(folder: Path) -> None:
    """The output's disk is named, be it a file's or standard output's."""
    write(folder / "in", line(*(span(f"s{number}", number) for number in range(1, 20_000))))
    (report,) = timeline(folder, "in", "-o", "/dev/full", code=1)
    assert report == "/dev/full cannot be written: No space left on device"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), *((number, 128 + number) for number in (signal.SIGTERM, signal.SIGHUP))]
)
def test_a_signal_while_reading_leaves_nothing(number: signal.Signals, code: int, folder: Path) -> None:
    """Ctrl-C, a scheduler's end, a lost connection: no output, no temporary file, no traceback."""
    os.mkfifo(folder / "pipe")
    with (
        _inherited(number, signal.SIG_DFL),
        _running(folder, "pipe") as process,
        (folder / "pipe").open("wb") as writer,
    ):
        # More than a pipe holds: when this returns, the command is in the middle of it.
        for count in range(30):
            writer.write(f"{line(*(span('x', count * 100 + item) for item in range(1, 100)))}\n".encode())
        writer.flush()
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, b"")
    assert os.listdir(folder) == ["pipe"]


def test_under_nohup_a_lost_connection_is_none(folder: Path) -> None:
    """A signal that is ignored stays ignored, and the picture is drawn."""
    os.mkfifo(folder / "pipe")
    ignored = _inherited(signal.SIGHUP, signal.SIG_IGN)
    with ignored, _running(folder, "pipe") as process, (folder / "pipe").open("wb") as writer:
        for count in range(30):
            writer.write(f"{line(*(span('x', count * 100 + item) for item in range(1, 100)))}\n".encode())
        writer.flush()
        process.send_signal(signal.SIGHUP)
        writer.close()
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("out", ["timeline.json", "timeline.json.gz"])
def test_a_signal_while_drawing_leaves_what_was_there(out: str, folder: Path) -> None:
    """The file that is being written is gone, and the picture of an earlier run is as it was."""
    inputs = folder / "in"
    inputs.mkdir()
    write_span_files(inputs, 2, 60_000)
    for _ in range(3):  # the machine may be too busy to catch it in the act
        (folder / out).write_text("before")
        with _inherited(signal.SIGINT, signal.SIG_DFL), _running(folder, "in", "-o", out) as process:
            while process.poll() is None and not any(name.endswith(".part") for name in os.listdir(folder)):
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        if process.returncode == 130:
            break
    assert (process.returncode, err) == (130, b"")
    assert (folder / out).read_text() == "before"
    assert sorted(os.listdir(folder)) == ["in", out]


def test_a_reader_of_the_output_that_leaves_is_no_error(folder: Path) -> None:
    """``nemo-lens timeline ... -o - | head`` ends quietly."""
    write(folder / "in", line(*(span(f"s{number}", number) for number in range(1, 20_000))))
    with _running(folder, "in", "-o", "-") as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
        assert (process.wait(timeout=30), err) == (0, b"")


@contextlib.contextmanager
def _inherited(number: signal.Signals, action: signal.Handlers) -> Iterator[None]:
    """Have commands start with this action: that of the tests themselves depends on who started them."""
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else action)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextlib.contextmanager
def _running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [*_COMMAND, *arguments], cwd=folder, env=environ(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()
