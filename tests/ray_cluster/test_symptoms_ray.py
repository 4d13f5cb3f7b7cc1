"""A symptom of the troubleshooting page that needs Ray."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ray_runs import needs_ray

from support.network import own_network
from support.symptoms import Lab, Symptom, symptom

pytestmark = [needs_ray, pytest.mark.timeout(150)]

PROGRAM = """
import os
os.environ.update(RAY_ADDRESS="local", RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
import ray
from nemo_lens.api import get_telemetry, instrument, setup_telemetry, span_cm
setup_telemetry(resource_attributes={"nv.dl.rank": 0})

@ray.remote
def work():
    with span_cm("work"):
        pass
    get_telemetry().force_flush()

def start():
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20)

FIRST()
SECOND()
ray.get(work.remote())
ray.shutdown()
"""


@symptom("Workers of Ray send nothing")
def test_switched_on_too_late(case: Symptom, tmp_path: Path) -> None:
    """After ray.init it is too late, which is said; before it, the worker's span is there."""
    lab = Lab(tmp_path)
    program = tmp_path / "job.py"

    def run(*order: str) -> tuple[str, list[str]]:
        program.write_text(PROGRAM.replace("FIRST()", order[0]).replace("SECOND()", order[1]))
        command = [*own_network("Ray binds"), sys.executable, str(program)]
        ended = lab.run(f"import subprocess, sys; sys.exit(subprocess.run({command!r}).returncode)")
        assert ended.code == 0, ended.err
        return ended.err, ended.written.names()

    said, names = run("start()", "instrument('ray')")
    case.seen(said)
    assert names == []
    said, names = run("instrument('ray')", "start()")
    case.absent(said)
    assert names == ["work"]
