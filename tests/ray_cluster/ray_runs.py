"""Runs the programs of ``programs/`` with a real Ray, each in a network of its own, and reads what came of it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.all_signals import clean_environ
from support.network import own_network
from support.otlp_decode import Record
from support.written import Written

PROGRAMS = Path(__file__).parent / "programs"
# A cluster of the program's own, and nothing sent to Ray's makers. Ray Client's server starts a process for each
# connection, and gRPC, whose fork handlers are on unless they are switched off, crashes some of them before they run
# ("Starting Ray client server failed", an empty log, and a segmentation fault of `event_engine` in the kernel's log).
_ENVIRON = {
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    "RAY_ADDRESS": "local",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONUNBUFFERED": "1",
}

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: run `nox -s ray`")


@dataclass(frozen=True)
class Finished:
    """How a program ended: what it said, what its workers logged, and the spans of all processes."""

    facts: dict[str, Any]
    stderr: str
    written: Written

    def spans(self, name: str) -> list[Record]:
        """Return the spans of this name, in the order they started."""
        return sorted((span for span in self.written.spans() if span["name"] == name), key=lambda span: span["start"])

    def parent(self, span: Record) -> str | None:
        """Return the name of the parent, None for a root; fail when the parent has not been exported."""
        if not span["parent_id"]:
            return None
        (found,) = [each for each in self.written.spans() if each["span_id"] == span["parent_id"]]
        assert found["trace_id"] == span["trace_id"]
        return str(found["name"])

    def parents(self, name: str) -> list[str | None]:
        """Return the name of the parent of each span of this name, in the order they started."""
        return [self.parent(span) for span in self.spans(name)]


def ray_run(program: str, folder: Path, environ: Mapping[str, str] | None = None, timeout_s: float = 150) -> Finished:
    """Run a program to its end; every process writes its telemetry below ``folder``."""
    written = Written(folder)
    command = [*own_network("Ray binds"), sys.executable, str(PROGRAMS / f"{program}.py")]
    variables = {"NEMO_LENS_ENABLED": "1", "NEMO_LENS_METRICS_ENABLED": "0", **written.environ, **(environ or {})}
    with subprocess.Popen(
        command,
        env=clean_environ({**_ENVIRON, **variables}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own session; Ray's processes end when their driver is gone
            out, err = process.communicate()
            raise AssertionError(f"still running after {timeout_s} s\n{out}\n{err}") from None
    assert process.returncode == 0, f"{out}\n{err}"
    facts: dict[str, Any] = {}
    for line in out.splitlines():
        if line.startswith("{"):
            facts.update(json.loads(line))
    return Finished(facts, err, written)
