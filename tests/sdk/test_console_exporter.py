"""The ``console`` exporter: strict JSON, one object a line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import textwrap
import time
from typing import Any, get_args

import pytest

from nemo_lens.api import _diagnostics
from nemo_lens.api.config import NemoLensConfig
from nemo_lens.sdk._compat import log_to_json
from nemo_lens.sdk.exporters import Signal, plan_exporter
from support.telemetry_samples import samples


def _exporter(signal: Signal) -> Any:
    return plan_exporter(signal, NemoLensConfig(exporter="console"), run_id="run", rank=0).make()


def _refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


def _lines(text: str) -> list[Any]:
    return [json.loads(line, parse_constant=_refuse) for line in text.splitlines()]


# What a program under test starts with; its standard output is a pipe.
_PROGRAM = """
import os, sys, threading, time
sys.path[:0] = {path!r}
from support.telemetry_samples import samples
from nemo_lens.api import *
from nemo_lens.sdk.exporters import plan_exporter
def exporter(signal="traces"):
    return plan_exporter(signal, NemoLensConfig(exporter="console"), run_id="run", rank=0).make()
def in_background(batch):
    thread = threading.Thread(target=exporter().export, args=(batch,), daemon=True)
    thread.start()
    return thread
"""


def _started(program: str, **environ: str) -> subprocess.Popen[bytes]:
    text = _PROGRAM.format(path=sys.path) + textwrap.dedent(program)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    pipe = subprocess.PIPE
    # Python 3.12 and later warn of every fork beside threads.
    command = [sys.executable, "-W", "error", "-W", "ignore:This process (pid:DeprecationWarning", "-c", text]
    return subprocess.Popen(command, env={**kept, **environ}, stdout=pipe, stderr=pipe)


@pytest.fixture(autouse=True)
def _every_warning_again() -> None:
    _diagnostics.forget_reported()


@pytest.mark.parametrize("signal", get_args(Signal))
def test_each_object_is_one_compact_line_of_strict_json(signal: Signal, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the values, a line is strict compact ASCII JSON; metrics are one object a collection."""
    batch = samples().of(signal)

    assert _exporter(signal).export(batch).name == "SUCCESS"

    text = capsys.readouterr().out
    lines = _lines(text)
    assert len(lines) == (1 if signal == "metrics" else len(batch))
    assert text == "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


@pytest.mark.parametrize("signal", get_args(Signal))
def test_the_schema_is_the_sdks_own(signal: Signal, capsys: pytest.CaptureFixture[str]) -> None:
    """A line says what the SDK's ``to_json`` says, with the names of JSON-less numbers as strings."""
    batch = samples().of(signal)

    _exporter(signal).export(batch)

    if signal == "logs":
        expected = [json.loads(log_to_json(item), parse_constant=str) for item in batch]
    else:
        items = [batch] if signal == "metrics" else batch
        expected = [json.loads(item.to_json(), parse_constant=str) for item in items]
    assert _lines(capsys.readouterr().out) == expected


def test_numbers_that_json_lacks_are_strings(capsys: pytest.CaptureFixture[str]) -> None:
    """NaN and the infinities are written as OTLP JSON spells them; a string of that name stays what it is."""
    _exporter("traces").export(samples().traces)

    (root,) = (line for line in _lines(capsys.readouterr().out) if line["name"] == "root")
    attributes = root["attributes"]
    assert (attributes["nan"], attributes["inf"], attributes["-inf"]) == ("NaN", "Infinity", "-Infinity")
    assert attributes["floats"] == [1.5, "NaN", "-Infinity"]


def test_standard_output_is_the_one_at_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that replaces ``sys.stdout`` after setup finds the lines in the new one, flushed."""
    exporter = _exporter("logs")
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(raw), encoding="ascii"))

    exporter.export(samples().logs)

    assert len(raw.getvalue().splitlines()) == len(samples().logs)


@pytest.mark.parametrize("broken", ["none", "closed"])
def test_an_unusable_standard_output_is_a_failure(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing or closed ``sys.stdout`` is the result FAILURE and one WARNING, never an exception."""
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", None if broken == "none" else closed)
    exporter = _exporter("traces")

    results = [exporter.export(samples().traces).name for _ in range(2)]

    assert results == ["FAILURE", "FAILURE"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "exporter console of traces" in caplog.text


def test_closing_leaves_standard_output_open(capsys: pytest.CaptureFixture[str]) -> None:
    """The application prints on after the exporter is closed, twice even."""
    exporter = _exporter("traces")
    exporter.export(samples().traces)

    exporter.shutdown()
    exporter.shutdown()

    print("still here")
    assert capsys.readouterr().out.endswith("still here\n")


def test_an_object_without_json_takes_no_other_with_it(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What the SDK cannot write as JSON is reported; the rest of the batch is printed."""

    class Odd:
        def to_json(self, indent: int | None = 4) -> str:
            return json.dumps(object())

    batch = samples().traces

    assert _exporter("traces").export((batch[0], Odd(), batch[1])).name == "FAILURE"

    assert [line["name"] for line in _lines(capsys.readouterr().out)] == [batch[0].name, batch[1].name]
    assert "not JSON serializable" in caplog.text


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_that_nobody_reads_leaves_the_exit_code(unbuffered: str) -> None:
    """More than a full pipe takes is lost and counted; the shutdown keeps its bound and the process ends with 0."""
    program = """
    config = NemoLensConfig(enabled=True, run_id="r", exporter="console", shutdown_timeout_ms=300)
    setup_telemetry(config, resource_attributes={"nv.dl.rank": 0})
    print("a first line")
    for number in range(1000):
        with span_cm("step", text="x" * 100):
            get_meter("test").create_counter("steps").add(1)
    """
    with _started(program, PYTHONUNBUFFERED=unbuffered) as process:
        code = process.wait(40)
        assert process.stdout is not None
        assert process.stderr is not None
        said, first = process.stderr.read().decode(), process.stdout.readline()
    assert code == 0, said
    assert "spans were dropped" in said
    assert first == b"a first line\n"


def test_a_pipe_that_does_not_block_gets_every_line() -> None:
    """Standard output that another program set to non-blocking, and reads late, gets all lines, none torn."""
    program = """
    os.set_blocking(1, False)
    print("x" * 5000)
    thread = in_background(samples().traces * 200)
    thread.join(0.3)
    print(thread.is_alive(), file=sys.stderr, flush=True)
    thread.join()
    """
    with _started(program) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"True\n"  # the pipe is full
        out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    printed, *lines = out.decode().splitlines()
    assert printed == "x" * 5000
    assert len([json.loads(line) for line in lines]) == 200 * len(samples().traces)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_lines_stand_between_the_prints_around_them(encoding: str) -> None:
    """What the program printed before, flushed or not, comes before, what it prints later after; in its encoding."""
    program = """
    print("before", end="\\n")
    exporter().export(samples().traces)
    print("after")
    """
    with _started(program, PYTHONIOENCODING=encoding) as process:
        out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    before, *lines, after = out.decode(encoding).splitlines()
    assert (before, after) == ("before", "after")
    assert len([json.loads(line) for line in lines]) == len(samples().traces)


@pytest.mark.parametrize(("signals", "prints"), [(("traces", "logs"), True), (get_args(Signal), False)])
def test_lines_stay_whole(signals: tuple[Signal, ...], prints: bool) -> None:
    """In a pipe that is full no line lands inside another: lines of signals, and with short ones the program's own."""
    program = f"""
    batches = samples()
    def export(signal):
        own = exporter(signal)
        for _ in range(60):
            own.export(batches.of(signal))
    threads = [threading.Thread(target=export, args=(signal,)) for signal in {signals}]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if {prints}:
            print('"printed"', flush=True)
    """
    with _started(program) as process:
        time.sleep(0.5)
        out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    objects = 60 * sum(1 if signal == "metrics" else len(samples().of(signal)) for signal in signals)
    assert sum(line != "printed" for line in _lines(out.decode())) == objects


def test_a_process_forked_while_a_write_waits_exports() -> None:
    """A child forked while the parent's batch waits for a full pipe writes its own, once somebody reads."""
    program = """
    thread = in_background(samples().traces * 200)
    thread.join(0.3)
    child = os.fork()
    if child == 0:
        os._exit(exporter().export(samples().traces).name != "SUCCESS")
    print(thread.is_alive(), file=sys.stderr, flush=True)
    thread.join()
    sys.exit(os.waitpid(child, 0)[1])
    """
    with _started(program) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"True\n"
        out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    assert len(_lines(out.decode())) == 201 * len(samples().traces)
