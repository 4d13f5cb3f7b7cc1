"""A rank of a job, set up by the environment alone: spans that end well and one that fails, log records, metrics.

usage: rank_of_a_job.py [RANK [STEPS]], where the rank is by default the one of the SLURM task
"""

from __future__ import annotations

import json
import logging
import os
import sys

from nemo_lens.api import SpanRegistry, managed_span, setup_telemetry
from nemo_lens.api.instruments import record_training_metrics


def main(rank: str = os.environ.get("SLURM_PROCID", "0"), steps: str = "3") -> None:
    """Run the steps; print whether every signal was confirmed."""
    SpanRegistry.register("job", ["run", "step"], {"default": ["run", "step"]})
    handle = setup_telemetry(resource_attributes={"nv.dl.rank": int(rank)})
    log = logging.getLogger("train")
    log.setLevel(logging.INFO)
    with managed_span("run", "run"):
        for number in range(int(steps)):
            with managed_span("step", "train_step", index=number):
                record_training_metrics(handle.meter, step_duration_s=0.5, loss=2.5 - number)
        log.info("trained")
        log.warning("loss is high")
        try:
            with managed_span("step", "evaluate"):
                raise FloatingPointError("loss is nan")
        except FloatingPointError:
            pass
    confirmed = handle.force_flush(10_000)
    handle.shutdown(10_000)
    json.dump({"confirmed": confirmed}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
