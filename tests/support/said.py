"""Runs a Python program that says what it has to say as JSON objects, one a line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

from support.all_signals import clean_environ
from support.otlp_decode import Record


def said_by(*command: str, environ: Mapping[str, str], timeout_s: float = 50) -> tuple[list[Record], str]:
    """Run a program to its end, which must be a good one; return what it said, and its standard error.

    Args:
        command: what follows ``python``.
        environ: variables, beside those of this process that configure no telemetry.
        timeout_s: seconds that it may take.
    """
    done = subprocess.run(
        [sys.executable, *command],
        env=clean_environ(environ),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr
