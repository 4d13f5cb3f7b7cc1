"""Launchers in Python, inside a job and outside: what they start is of their run and under their span."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.slurm import SlurmCluster
from support.slurm_ranks import PROGRAMS, job_environ, ranks_in
from support.written import Written

pytestmark = pytest.mark.timeout(150)


def test_what_a_launcher_starts_with_srun_is_under_its_span(slurm: SlurmCluster, tmp_path: Path) -> None:
    """All four ranks continue the trace of the launcher in the batch step, as children of its span, in its run."""
    job = slurm.submit(
        *("--nodes=2", "--ntasks-per-node=2", str(PROGRAMS / "launch.sh")), environ=job_environ(tmp_path), cwd=tmp_path
    )
    (finished,) = slurm.wait_for_job(job, tmp_path)

    launcher = Written(tmp_path).span("launch")
    ranks = ranks_in(tmp_path)
    assert [rank.resource["nv.dl.rank"] for rank in ranks] == [0, 1, 2, 3]
    assert {(rank.span["trace_id"], rank.span["parent_id"]) for rank in ranks} == {
        (launcher["trace_id"], launcher["span_id"])
    }
    assert launcher["parent_id"] == ""
    assert {rank.resource["nemo.run.id"] for rank in ranks} == {launcher["resource"]["nemo.run.id"]} == {job}
    # The launcher is a process of the batch step, its ranks are of another.
    assert launcher["resource"]["slurm.head_node.name"] == finished["BatchHost"]
    assert launcher["resource"]["nv.dl.role"] == "launcher"
    assert not any("nv.dl.role" in rank.resource for rank in ranks)


def test_the_job_that_a_launcher_submits_is_under_its_span(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A launcher outside SLURM makes up a run id; the job it submits has that, not its own, and its trace."""
    submit = ("sbatch", "--wait", "--output=%j.out", "--time=5", "--nodes=2", "--ntasks-per-node=2")
    launched = subprocess.run(
        (sys.executable, str(PROGRAMS / "launcher.py"), *submit, str(PROGRAMS / "tasks.sh")),
        env={**slurm.environ, **job_environ(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert launched.returncode == 0, f"{launched.stderr}{slurm.logs()}"
    job = launched.stdout.split()[-1]
    launcher = Written(tmp_path).span("launch")
    ranks = ranks_in(tmp_path)
    run_id = launcher["resource"]["nemo.run.id"]
    assert [rank.resource["nv.dl.rank"] for rank in ranks] == [0, 1, 2, 3]
    assert {(rank.span["trace_id"], rank.span["parent_id"]) for rank in ranks} == {
        (launcher["trace_id"], launcher["span_id"])
    }
    assert {rank.resource["nemo.run.id"] for rank in ranks} == {run_id}
    assert [rank.resource["service.instance.id"] for rank in ranks] == [f"{run_id}-rank{number}" for number in range(4)]
    assert run_id != job
    assert {rank.slurm["slurm.job.id"] for rank in ranks} == {job}
    assert "slurm.job.id" not in launcher["resource"]
