"""The program of a measured rank: trains once for each set of variables that it is given.

usage: rank.py STEPS VARIABLES..., each a JSON object
"""

from __future__ import annotations

import json
import os
import sys

from scale import workload

from nemo_lens.api import setup_telemetry


def main(steps: str, *settings: str) -> None:
    """Train ``steps`` steps under each of ``settings`` in turn, and deliver what was recorded."""
    for variables in settings:
        os.environ.update(json.loads(variables))
        handle = setup_telemetry(resource_attributes=workload.RESOURCE)
        if not handle.is_exporting:
            sys.exit("the rank does not export")
        workload.train(workload.Job(), int(steps))
        if not handle.force_flush(60_000):
            sys.exit("the receiver did not confirm everything")
        handle.shutdown(10_000)


if __name__ == "__main__":
    main(*sys.argv[1:])
