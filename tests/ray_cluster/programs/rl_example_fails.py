"""Runs the example where no cluster can be started, and looks for what it left running."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "rl_ray.py"


def main():
    sys.argv = [str(EXAMPLE)]
    fault = None
    try:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    except Exception as raised:
        fault = repr(raised)
    try:
        left = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        left = None
    print(json.dumps({"fault": fault, "left": left}))


if __name__ == "__main__":
    main()
