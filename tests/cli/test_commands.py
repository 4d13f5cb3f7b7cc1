"""The command line as a whole: help, version, wrong commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_lens.sdk.cli import main

COMMANDS = ("demo", "doctor", "emit-spans", "groups", "set-slurm-resource-attrs", "timeline", "tree")


def test_help_lists_the_commands_and_loads_none_of_them() -> None:
    """``--help`` is fast: neither a command's module nor OpenTelemetry is imported for it."""
    program = (
        "import sys; from nemo_lens.sdk.cli import main; assert main(['--help']) == 0; "
        "loaded = [n for n in sys.modules if n.startswith(('opentelemetry', 'nemo_lens.sdk.cli.'))]; "
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    for command in COMMANDS:
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``nemo-lens COMMAND --help`` says what the command does."""
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: nemo-lens {command} ")


def test_the_version_is_that_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    """``--version`` prints the one version of all wheels."""
    import nemo_lens.api

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"nemo-lens {nemo_lens.api.__version__}\n"


def test_a_misspelt_command_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command gives exit code 2, the nearest name and the list."""
    assert main(["tre", "a.jsonl"]) == 2
    err = capsys.readouterr().err
    assert f"unknown command 'tre', did you mean 'tree'? (commands: {', '.join(COMMANDS)})" in err


@pytest.mark.parametrize("arguments", [[], ["--colour"], ["tree"], ["tree", "--attribute-s", "a"], ["groups", "extra"]])
def test_wrong_arguments_give_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong or missing arguments give exit code 2 and the usage on standard error."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: nemo-lens" in captured.err


def in_shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    nemo_lens = f"{sys.executable} -m nemo_lens.sdk.cli"
    return subprocess.run(
        ["bash", "-c", line.replace("nemo-lens", nemo_lens)],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("nemo-lens groups >&-", 0),
        ("nemo-lens set-slurm-resource-attrs --stage task >&-", 0),
        ("nemo-lens set-slurm-resource-attrs --stage task 2>&-", 0),
        ("nemo-lens emit-spans --service s --span a,1,2 >&- <&-", 0),
        ("nemo-lens emit-spans --service s --span a,1,2 2>&-", 0),
        ("nemo-lens emit-spans --service s --span a,x,2 2>&-", 1),
        ("NEMO_LENS_ENABLED=1 nemo-lens doctor --json >&- 2>&-", 0),
        ("nemo-lens tree . >&- 2>&-", 1),
    ],
)
def test_a_closed_stream_changes_no_exit_code(tmp_path: Path, line: str, code: int) -> None:
    """What a shell has closed (``>&-``) is written to nowhere; the exit code still says what was done."""
    done = in_shell(f"cd {tmp_path} && {line}", NEMO_LENS_EXPORTER="file", NEMO_LENS_FILE_PATH=f"{tmp_path}/{{pid}}")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """Output that cannot be written is one line on standard error and exit code 1."""
    done = in_shell("nemo-lens set-slurm-resource-attrs --stage task >/dev/full", SLURM_JOB_ID="7")
    assert done.returncode == 1
    assert done.stderr == "nemo-lens: the output cannot be written: No space left on device\n"
