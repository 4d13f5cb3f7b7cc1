"""Every command and every Python block of the README, run as it stands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.checkouts import copy_checkout

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.M | re.S)
COMMANDS = [block.strip() for language, block in FENCES if language == "bash"]
PYTHON = [block for language, block in FENCES if language == "python"]

DEMO, TREE, TESTS, EXPORTS, GROUPS, DOCTOR = range(6)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git tracks, or would, as a newcomer clones it."""
    return copy_checkout(tmp_path_factory.mktemp("newcomer") / "checkout")


def run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("NEMO_LENS_", "OTEL_"))}
    return subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env={**variables, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=540,
    )


def test_the_readme_holds_the_commands_tested_here() -> None:
    """A command added to the README needs a test here."""
    assert len(COMMANDS) == 6
    assert len(PYTHON) == 4


@pytest.mark.timeout(600)
def test_first_command_installs_and_runs_the_demo(checkout: Path) -> None:
    """The first command of the README, on a machine that has only Python, ends in the tree of a run."""
    done = run(COMMANDS[DEMO], checkout)
    assert done.returncode == 0, done.stderr
    assert "rank 0" in done.stdout
    assert "rank 2" in done.stdout
    again = run(COMMANDS[TREE], checkout)
    assert again.returncode == 0, again.stderr
    assert "rank 2" in again.stdout
    groups = run(COMMANDS[GROUPS], checkout)
    assert groups.returncode == 0, groups.stderr
    doctor = run(COMMANDS[DOCTOR], checkout)
    assert doctor.returncode == 1, doctor.stderr
    assert "NEMO_LENS_ENABLED" in doctor.stdout, "it is off, and doctor says what switches it on"


def test_second_command_lists_its_session(checkout: Path) -> None:
    """The test command names a nox session that exists; running it here would run this test again."""
    command, session = COMMANDS[TESTS].rsplit(" && ", 1)[1], "tests"
    assert command == f".venv/bin/nox -s {session}"
    listed = run(f"{sys.executable} -m nox -l", checkout)
    assert re.search(rf"^[*-] {session}\b", listed.stdout, flags=re.M), listed.stdout + listed.stderr


@pytest.mark.parametrize("enabled", ["0", "1"])
def test_instrumentation_example(tmp_path: Path, enabled: str) -> None:
    """The instrumentation example runs as it stands, off and on; on, its spans are written."""
    setup = "from nemo_lens.api import setup_telemetry\nhandle = setup_telemetry()\n"
    (tmp_path / "example.py").write_text(setup + PYTHON[0] + "\nhandle.shutdown()\n", encoding="utf-8")
    done = run(
        f"{sys.executable} example.py",
        tmp_path,
        NEMO_LENS_ENABLED=enabled,
        NEMO_LENS_EXPORTER="console",
        NEMO_LENS_METRICS_ENABLED="0",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"train.step"') == (3 if enabled == "1" else 0)
    assert done.stdout.count('"save_checkpoint"') == (1 if enabled == "1" else 0)


def test_switch_on_example_with_the_exports(tmp_path: Path) -> None:
    """The switch-it-on example runs with the variables the README exports, with no collector there to hear it."""
    (tmp_path / "train.py").write_text(PYTHON[2], encoding="utf-8")
    done = run(f"{COMMANDS[EXPORTS]}\n{sys.executable} train.py", tmp_path, NEMO_LENS_SHUTDOWN_TIMEOUT_MS="300")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("enabled", ["0", "1"])
def test_metrics_example(tmp_path: Path, enabled: str) -> None:
    """The metrics example runs as it stands, off and on; on, what it recorded is written."""
    setup = "from nemo_lens.api import setup_telemetry\nhandle = setup_telemetry()\n"
    (tmp_path / "example.py").write_text(setup + PYTHON[3] + "\nhandle.shutdown()\n", encoding="utf-8")
    done = run(
        f"{sys.executable} example.py", tmp_path, NEMO_LENS_ENABLED=enabled, NEMO_LENS_EXPORTER="console", RANK="0"
    )
    assert done.returncode == 0, done.stderr
    names = ("dl.training.loss", "dl.training.step.duration", "mytrainer.io.wait", "mytrainer.samples.dropped")
    assert [name in done.stdout for name in names] == [enabled == "1"] * len(names)


def test_failures_look_as_the_readme_says(tmp_path: Path) -> None:
    """The error and the warning that the README shows are those of a wrong protocol and of a dead collector."""
    shown = [block.strip() for language, block in FENCES if language == "text"]
    setup = "from nemo_lens.api import setup_telemetry; handle = setup_telemetry()"
    wrong = run(
        f'{sys.executable} -c "{setup}"', tmp_path, NEMO_LENS_ENABLED="1", OTEL_EXPORTER_OTLP_PROTOCOL="http/json"
    )
    assert wrong.stderr.splitlines()[-1] == shown[0]
    spans = "[handle.tracer.start_span(str(n)).end() for n in range(3000)]; handle.shutdown(100)"
    dead = run(
        f'{sys.executable} -c "{setup}; {spans}"',
        tmp_path,
        NEMO_LENS_ENABLED="1",
        NEMO_LENS_METRICS_ENABLED="0",
        OTEL_BSP_MAX_QUEUE_SIZE="4096",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
    )
    assert shown[1] in dead.stderr.splitlines(), dead.stderr


def test_fallback_example(tmp_path: Path) -> None:
    """The consumer's seam falls back to the vendored file without NeMo Lens, and uses NeMo Lens with it."""
    package = tmp_path / "mytrainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    fallbacks = ROOT / "packages/nemo-lens-api/src/nemo_lens/api/fallbacks.py"
    shutil.copy(fallbacks, package / "_nemo_lens_fallbacks.py")
    (tmp_path / "seam.py").write_text(PYTHON[1] + "\nprint(managed_span.__module__)\n", encoding="utf-8")
    with_lens = run(f"{sys.executable} seam.py", tmp_path)
    assert with_lens.stdout.strip() == "nemo_lens.api.spans", with_lens.stderr
    without = run(f"{sys.executable} -S seam.py", tmp_path, PYTHONPATH=str(tmp_path))
    assert without.stdout.strip() == "mytrainer._nemo_lens_fallbacks", without.stderr
