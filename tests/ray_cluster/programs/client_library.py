"""What workers of a Ray Client job import: doing so sets them up."""

from __future__ import annotations

import os

import common  # noqa: F401 - registers the span groups

from nemo_lens.api import get_telemetry
from nemo_lens.contrib.ray import setup_worker, traced_remote_call

if "TRACEPARENT" in os.environ:  # in a worker, from the driver
    setup_worker()


def warm():
    return [get_telemetry().is_exporting, os.environ["NEMO_LENS_RUN_ID"], os.environ.get("MINE")]


@traced_remote_call("calls", "double")
def double(x):
    return 2 * x


class Actor:
    @traced_remote_call("calls", "made")
    def __init__(self, start):
        self.start = start

    @traced_remote_call("calls", "add", attributes=lambda self, x: {"x": x})
    def add(self, x):
        return self.start + x

    def undecorated(self, **kwargs):
        return sorted(kwargs)
