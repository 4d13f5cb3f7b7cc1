"""Ends every process of one SLURM and removes its folder as soon as whoever started it is done, or dead.

usage: slurm_keeper.py FOLDER, with a pipe to its standard input that only its starter holds
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

_PATIENCE_S = 2.0


def _processes(folder: Path) -> list[int]:
    """Return the daemons and whatever they started: the configuration in their environment is this SLURM's."""
    mark = f"SLURM_CONF={folder}/slurm.conf".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _end(folder: Path, how: signal.Signals) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    asked: set[int] = set()
    while (running := _processes(folder)) and time.monotonic() < deadline:
        for process in set(running) - asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, how)
        asked.update(running)
        time.sleep(0.02)


if __name__ == "__main__":
    sys.stdin.read()
    for how in (signal.SIGTERM, signal.SIGKILL):
        _end(Path(sys.argv[1]), how)
    shutil.rmtree(sys.argv[1], ignore_errors=True)
