"""A launcher in Python: opens a span and runs a command that is set up alike and lands under that span.

usage: launcher.py COMMAND...
"""

from __future__ import annotations

import os
import subprocess
import sys

from nemo_lens.api import NemoLensConfig, inject_context, setup_telemetry, span_cm


def main(command: list[str]) -> None:
    """Run ``command`` inside the span ``launch``."""
    config = NemoLensConfig.from_env()
    role = {"nv.dl.role": "launcher"}
    with setup_telemetry(config, resource_attributes=role), span_cm("launch"):
        environment = {**os.environ, **config.to_env()}
        inject_context(environment)
        subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
