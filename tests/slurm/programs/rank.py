"""One process of a job: records a span, and leaves the environment it saw in a file that the span names.

usage: rank.py LABEL [--run-uuid]
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from nemo_lens.api import SpanRegistry, managed_span, setup_telemetry
from nemo_lens.api.identity import derive_run_uuid


def main(label: str, *options: str) -> None:
    """Record the span ``rank``; with ``--run-uuid`` this program says itself which run it belongs to."""
    attributes: dict[str, object] = {
        "nv.dl.rank": int(os.environ["SLURM_PROCID"]),
        "nv.dl.world_size": int(os.environ.get("SLURM_NTASKS", "1")),
        "nv.dl.local_rank": int(os.environ["SLURM_LOCALID"]),
    }
    if "--run-uuid" in options:
        attributes["nv.dl.run.uuid"] = derive_run_uuid()
    seen = Path(f"environment-{os.environ['SLURM_JOB_ID']}-{os.getpid()}.json")
    seen.write_text(json.dumps(dict(os.environ)), encoding="utf-8")
    SpanRegistry.register("ranks", ["work"], {"default": ["work"]})
    with (
        setup_telemetry(resource_attributes=attributes),
        managed_span("work", "rank", label=label, environment=seen.name),
    ):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
