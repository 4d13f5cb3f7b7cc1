"""What ``nemo-lens doctor`` looks like to a person and to a machine, and what it leaves behind."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.doctor_run import doctor, environment, run_text

CONSOLE = {"NEMO_LENS_EXPORTER": "console"}
SECTIONS = [
    "Installation",
    "Entry points",
    "Settings",
    "Variables",
    "Span groups",
    "Surroundings",
    "Resource",
    "Endpoints",
    "Findings",
]


def sections(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith(" ") and not line.endswith(".")]


def test_the_documented_keys() -> None:
    """The JSON has the keys that the documentation lists, and no others."""
    report = doctor(OTEL_SERVICE_NAME="x", **CONSOLE).report
    assert list(report) == [
        "schema_version",
        "arrives",
        "findings",
        "endpoints",
        "installation",
        "configuration",
        "span_groups",
        "surroundings",
    ]
    assert report["schema_version"] == 1
    keys = {
        "findings": {"level", "code", "signals", "message", "remedy"},
        "endpoints": {
            *("signal", "outcome", "exporter", "transport", "transport_origin", "endpoint", "endpoint_origin"),
            *("headers", "proxy", "detail", "round_trip_ms"),
        },
    }
    for section, expected in keys.items():
        assert report[section]
        for row in report[section]:
            assert set(row) == expected
    assert set(report["installation"]) == {"python", "executable", "packages", "backend", "entry_points"}
    assert set(report["installation"]["packages"][0]) == {"name", "version", "location"}
    points = report["installation"]["entry_points"]
    assert set(points[0]) == {"group", "name", "value", "distribution", "loads", "error"}
    assert set(report["configuration"]) == {"settings", "variables"}
    assert set(report["configuration"]["settings"][0]) == {"name", "value", "origin", "variables", "error"}
    assert report["configuration"]["variables"] == [{"name": "OTEL_SERVICE_NAME", "value": "x"}]
    assert set(report["span_groups"]) == {"spec", "origin", "enabled", "pending", "namespaces"}
    where = report["surroundings"]
    assert set(where) == {"host", "gpus", "run_id", "rank", "slurm", "kubernetes", "resource"}
    assert set(where["resource"][0]) == {"name", "value", "origin"}


def test_the_json_of_an_environment_that_is_no_utf_8() -> None:
    """A byte that is no character becomes U+FFFD: strict readers refuse half a surrogate pair."""
    run = doctor(OTEL_SERVICE_NAME="x\udcff", **CONSOLE)
    assert run.setting("service_name")["value"] == "x\ufffd"
    assert "\\udc" not in run.stdout


def test_a_long_variable() -> None:
    """What a resource may be is read and shown: 93 KB of it, most of it dropped or redacted."""
    text = ",".join(f"token{number}.token=value{number}" for number in range(3000))[:93_000]
    run = doctor(OTEL_RESOURCE_ATTRIBUTES=text, **CONSOLE)
    assert run.code == 0
    assert "value" not in run.report["configuration"]["variables"][0]["value"]


def test_a_person_reads_sections_then_findings_then_the_verdict() -> None:
    """The worst stands last, next to the prompt, with what to do about it."""
    done = run_text(OTEL_SERVICE_NAME="x", NEMO_LENS_ENABLED="0", **CONSOLE)
    assert (done.returncode, done.stderr) == (1, "")
    assert sections(done.stdout) == SECTIONS
    *_, remedy, blank, verdict = done.stdout.splitlines()
    assert remedy.strip() == "→ set NEMO_LENS_ENABLED=1, unless the application switches it on in code"
    assert blank == ""
    assert re.fullmatch(r"Telemetry would not arrive: 1 problem(, \d+ warnings?)?\.", verdict)
    levels = [line.split()[1] for line in done.stdout.splitlines() if re.match(r"  [✓!✗] (ok|warning|problem) ", line)]
    assert levels == sorted(levels, key=["ok", "warning", "problem"].index)
    good = run_text(**CONSOLE)
    assert good.returncode == 0
    assert re.fullmatch(r"Telemetry would arrive(: \d+ warnings?)?\.", good.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_colour_is_for_terminals(variables: dict[str, str], coloured: bool) -> None:
    """Colour on a terminal that has it, unless NO_COLOR is set; never in a pipe."""
    assert ("\x1b[" in on_a_terminal(**variables, **CONSOLE)) is coloured
    assert "\x1b" not in run_text(TERM="xterm", **CONSOLE).stdout


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_a_narrow_terminal(columns: int) -> None:
    """Lines are wrapped, not cut: what does not fit is a name or an address that must stay whole."""
    done = run_text(COLUMNS=str(columns), **CONSOLE)
    for line in done.stdout.splitlines():
        assert len(line) <= columns or " " not in line.strip() or len(line.split()[-1]) > 24 - 4, line
    whole = " ".join(run_text(**CONSOLE).stdout.split())
    wrapped = " ".join(done.stdout.split())
    for finding in doctor(**CONSOLE).report["findings"]:
        if "run id" not in finding["message"]:
            assert finding["message"] in whole
            assert finding["message"] in wrapped


def test_a_terminal_without_unicode() -> None:
    """Signs have a spelling in ASCII."""
    done = run_text(PYTHONIOENCODING="ascii", **CONSOLE)
    assert done.stdout.isascii()
    assert "  + ok       " in done.stdout


@pytest.mark.parametrize("options", [("--timeout-ms", "0"), ("--timeout-ms", "soon"), ("--prefix", " _"), ("what",)])
def test_wrong_arguments(options: tuple[str, ...]) -> None:
    """Exit 2, with what is accepted."""
    done = run_text(*options)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: nemo-lens doctor" in done.stderr


def test_nothing_is_changed(tmp_path: Path) -> None:
    """No provider, no file, no thread and no variable is left, and telemetry can be set up afterwards."""
    program = (
        "import os, threading, sys, io, contextlib, logging, warnings\n"
        "from nemo_lens.sdk.cli import main\n"
        "before = dict(os.environ), threading.active_count(), list(logging.getLogger().handlers), warnings.filters[:]\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    assert main(['doctor', '--json']) == 0\n"
        "after = dict(os.environ), threading.active_count(), list(logging.getLogger().handlers), warnings.filters[:]\n"
        "assert before == after, (before, after)\n"
        "from opentelemetry import trace, metrics, _logs\n"
        "for provider in (trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider()):\n"
        "    assert 'Proxy' in type(provider).__name__, provider\n"
        "from nemo_lens.api import setup_telemetry\n"
        "assert setup_telemetry().is_exporting\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(NEMO_LENS_ENABLED="1", NEMO_LENS_EXPORTER="file", NEMO_LENS_FILE_PATH="out/{signal}.jsonl"),
        cwd=tmp_path,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.rglob("*")} <= {"out", "metrics.jsonl"}


def test_opentelemetry_is_imported_only_after_a_look(tmp_path: Path) -> None:
    """The modules that doctor starts with import neither OpenTelemetry nor a transport."""
    program = (
        "import sys; import nemo_lens.sdk.cli.doctor;"
        "print([m for m in sys.modules if m.split('.')[0] in ('opentelemetry', 'grpc', 'requests', 'google')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=50, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def on_a_terminal(**variables: str) -> str:
    """Return what doctor writes to a pseudo-terminal."""
    parent, child = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "nemo_lens.sdk.cli", "doctor"],
            stdout=child,
            stderr=subprocess.DEVNULL,
            env=environment(NEMO_LENS_ENABLED="1", **variables),
        )
        os.close(child)
        written = b""
        while True:
            try:
                more = os.read(parent, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            written += more
        assert process.wait(timeout=50) == 0
    finally:
        os.close(parent)
    return written.decode()
