"""The real Collector in place of ``otelcol-contrib``: runs a configuration without what is not in its build.

usage: otelcol_contrib.py [COMMAND] --config FILE
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import yaml

from support.collector_configs import runnable, write
from support.peer_programs import peer_binary


def main(arguments: list[str]) -> None:
    """Become the Collector, with the configuration that its build can run."""
    at = arguments.index("--config") + 1
    config = yaml.safe_load(Path(arguments[at]).read_text(encoding="utf-8"))
    for name, pipeline in config["service"]["pipelines"].items():
        kept = [each for each in pipeline["exporters"] if not each.startswith("file/")]
        config["service"]["pipelines"][name]["exporters"] = kept or ["nop"]
    config["exporters"]["nop"] = None
    reduced = write(runnable(config), Path(tempfile.mkdtemp()))
    binary = str(peer_binary("otelcol"))
    os.execv(binary, [binary, *arguments[: at - 1], "--config", str(reduced), *arguments[at + 1 :]])


if __name__ == "__main__":
    main(sys.argv[1:])
