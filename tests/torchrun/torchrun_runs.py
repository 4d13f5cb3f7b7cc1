"""Runs the programs of ``programs/`` under a real torchrun, in a network of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.all_signals import clean_environ
from support.network import own_network
from support.otlp_decode import Record

PROGRAMS = Path(__file__).parent / "programs"
TORCHRUN = ("-m", "torch.distributed.run")
STANDALONE = ("--standalone",)
# What keeps torch from warning, so that the rest of stderr is ours, and Gloo from looking for the host's address.
QUIET = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo"}

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed: run `nox -s torch`"
)


@dataclass(frozen=True)
class Finished:
    """How a launch ended, and what its processes said."""

    code: int
    facts: list[Record]
    stderr: str

    def fact(self, key: str) -> Any:
        """Return what one process said about ``key``."""
        (value,) = [fact[key] for fact in self.facts if key in fact]
        return value

    def ranks(self) -> dict[int, Record]:
        """Return what each rank said of itself, by the rank torchrun gave it."""
        said = {int(fact["environ"]["RANK"]): fact for fact in self.facts if "environ" in fact}
        assert sorted(said) == list(range(len(said))), self.stderr
        assert len(said) == sum("environ" in fact for fact in self.facts), "a rank spoke twice"
        return said

    def cases(self, name: str) -> dict[int, Record]:
        """Return what each rank said of a case of ``context.py``."""
        return {fact["rank"]: fact for fact in self.facts if fact.get("case") == name}

    def common(self, key: str) -> Any:
        """Return the one value that the resources of all ranks hold under ``key``."""
        (value,) = {fact["resource"].get(key) for fact in self.ranks().values()}
        return value


def torchrun(
    scenario: str,
    *arguments: object,
    program: str = "rank.py",
    options: tuple[str, ...] = STANDALONE,
    ranks: int = 4,
    environ: Mapping[str, str],
) -> Finished:
    """Run a scenario of one of the programs under torchrun."""
    return _finish(_started(*_command(scenario, arguments, options, ranks, program), environ=environ))


def evict(scenario: str, *arguments: object, ranks: int = 4, environ: Mapping[str, str]) -> Finished:
    """Run a scenario of ``rank.py`` under torchrun, and send torchrun a SIGTERM once every rank is ready for it."""
    job = _started(*_command(scenario, arguments, STANDALONE, ranks), environ=environ)
    assert job.stdout is not None
    said: list[str] = []
    while sum('"ready"' in line for line in said) < ranks:
        line = job.stdout.readline()
        assert line, job.communicate()[1]
        said.append(line)
    job.send_signal(signal.SIGTERM)
    return _finish(job, said)


def launch(scenario: str, environ: Mapping[str, str]) -> Finished:
    """Run a scenario of ``launcher.py``, which starts torchrun itself."""
    return _finish(_started(str(PROGRAMS / "launcher.py"), scenario, environ=environ))


def run_example(path: Path, *arguments: str, ranks: int, environ: Mapping[str, str]) -> tuple[int, list[str], str]:
    """Run a program of the documentation under torchrun; return its exit code, its lines and what it said on stderr."""
    job = _started(*TORCHRUN, *STANDALONE, f"--nproc-per-node={ranks}", str(path), *arguments, environ=environ)
    out, err = _output(job, 200)
    return job.returncode, out.splitlines(), err


def _command(
    scenario: str, arguments: tuple[object, ...], options: tuple[str, ...], ranks: int, program: str = "rank.py"
) -> list[str]:
    command = (str(PROGRAMS / program), scenario, *map(str, arguments))
    return [*TORCHRUN, *options, f"--nproc-per-node={ranks}", *command]


def _started(*command: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    # torch's stores bind every interface, whatever address they are given.
    return subprocess.Popen(
        [*own_network("torch's stores bind"), sys.executable, *command],
        env=clean_environ({**QUIET, **environ}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _finish(job: subprocess.Popen[str], said: Sequence[str] = ()) -> Finished:
    out, err = _output(job, 100)
    lines = [*said, *out.splitlines()]
    return Finished(job.returncode, [json.loads(line) for line in lines if line.strip()], err)


def _output(job: subprocess.Popen[str], timeout_s: int) -> tuple[str, str]:
    try:
        return job.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGTERM)  # its own session; torchrun ends its ranks, which lead theirs
        out, err = job.communicate(timeout=15)
        raise AssertionError(f"still running after {timeout_s} s\n{out}\n{err}") from None
