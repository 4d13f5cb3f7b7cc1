"""A script that sets telemetry up when it is imported, as children of spawn and forkserver import it."""

from __future__ import annotations

import multiprocessing
import os
import sys

import common
from common import say

from nemo_lens.api import get_telemetry, managed_span

if __name__ != "__main__":
    common.set_up(rank=7, logs_enabled=True)


def work() -> None:
    """Work, and leave the rest to the end of the process."""
    with managed_span("work", "done"):
        get_telemetry().meter.create_counter("done").add(3)
        common.write_log(get_telemetry(), "done")
    say(worker=os.getpid())


if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=work)
    child.start()
    child.join()
    say(codes=[child.exitcode])
