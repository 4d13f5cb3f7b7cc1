"""The script of ``docs/observability/index.md`` that brings a job's own collectors, as a job of a real SLURM."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from support.collector_configs import CONFIGS, FOLDER, Ports, install_contrib
from support.otlp_receiver import OtlpReceiver
from support.peer_fixtures import needed_binary
from support.slurm import SlurmCluster
from support.slurm_ranks import job_environ

pytestmark = pytest.mark.timeout(900)  # it may have to build the Collector

PAGE = (FOLDER.parent / "index.md").read_text(encoding="utf-8")
(SCRIPT,) = re.findall(r"^```sh\n(#!/bin/bash\n.*?)^```$", PAGE, flags=re.M | re.S)
RANK = Path(__file__).parents[1] / "support" / "programs" / "rank_of_a_job.py"
# All nodes of the test's cluster are this machine, where two collectors would want the same ports.
SMALLER = ("--nodes=1", "--ntasks-per-node=2", "--gpus-per-node=2")


def test_a_job_brings_its_own_collector(slurm: SlurmCluster, otlp_receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Both ranks send to the collector of their node, which hands on everything before the job ends by itself."""
    needed_binary("otelcol")
    path = install_contrib(tmp_path)
    shutil.copy(CONFIGS["node"], tmp_path)
    shutil.copy(RANK, tmp_path / "train.py")
    (tmp_path / "job.sh").write_text(SCRIPT, encoding="utf-8")
    kept = {name: value for name, value in job_environ(tmp_path).items() if not name.startswith(("NEMO_LENS", "OTEL"))}
    environ = {**kept, **Ports().environ, "COLLECTOR_GATEWAY": otlp_receiver.grpc_endpoint, "PATH": path}
    job = slurm.submit(*SMALLER, "job.sh", environ=environ, cwd=tmp_path)
    slurm.wait_for_job(job, tmp_path)

    logs = "".join(log.read_text(encoding="utf-8") for log in tmp_path.glob("collector-*.log"))
    steps = [span for span in otlp_receiver.spans() if span["name"] == "train_step"]
    assert sorted(span["resource"]["nv.dl.rank"] for span in steps) == [0, 0, 0, 1, 1, 1], logs
    assert {span["resource"]["slurm.job.id"] for span in steps} == {job}
    own = [point["resource"] for point in otlp_receiver.points() if point["name"].startswith("otelcol_")]
    assert {resource["host.name"] for resource in own} == {span["resource"]["slurm.topology.addr"] for span in steps}
    assert "Shutdown complete" in logs
