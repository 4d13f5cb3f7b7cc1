"""What OpenTelemetry's OTLP exporters log, told line by line while they fail."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any

import common
from common import say

from nemo_lens.api import managed_span


class Telling(logging.Handler):
    """The application's handler: says each line of an exporter of OpenTelemetry's."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("opentelemetry.exporter."):
            message = record.getMessage()
            say(line=[os.getpid(), record.name, record.levelname, record.msg, message])


def begin() -> Any:
    """Set all signals up, and tell what is logged about them."""
    logging.getLogger().addHandler(Telling())
    return common.set_up(logs_enabled=True, shutdown_timeout_ms=500)


def work(handle: Any) -> None:
    """Give each signal something to export, for ever."""
    counter = handle.meter.create_counter("done")
    while True:
        with managed_span("work", "step"):
            counter.add(1)
        common.write_log(handle, "step")
        time.sleep(0.01)


def tries() -> None:
    """Have all signals exported until the test has seen enough."""
    threading.Thread(target=work, args=(begin(),), daemon=True).start()
    common.wait_for_test()
    os._exit(0)


def forks() -> None:
    """Have a parent and a child export until the test has seen enough."""
    handle = begin()
    threading.Thread(target=work, args=(handle,), daemon=True).start()
    common.wait_for_test()
    pid = os.fork()
    if pid == 0:
        work(handle)
    say(child=pid)
    common.wait_for_test()
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    os._exit(0)


def beside(count: str) -> None:
    """Have an exporter of the application's own fail beside ours, for as many batches as the test says."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    threading.Thread(target=work, args=(begin(),), daemon=True).start()
    common.wait_for_test()
    own = OTLPSpanExporter(timeout=0.5)
    say(own=[own.export([]).name for _ in range(int(count))])
    os._exit(0)


if __name__ == "__main__":
    common.main(globals())
