"""The command line as a whole: help, version, wrong commands."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nemo_lens.sdk.cli import main

COMMANDS = ("demo", "doctor", "emit-spans", "groups", "set-slurm-resource-attrs", "tree")


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
