"""A requeued job: the same job and run id, another attempt."""

from __future__ import annotations

import pytest

from support.slurm import SlurmCluster
from support.slurm_ranks import PROGRAMS, Rank, contradictions, job_environ, job_uuid, ranks_in, run_uuid

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(scope="module")
def attempts(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], list[Rank]]:
    """Run a job, requeue it when its first attempt is done, and return it with the ranks of both attempts."""
    folder = tmp_path_factory.mktemp("requeued")
    job = slurm.submit(
        *("--requeue", "--open-mode=append", "--nodes=2", str(PROGRAMS / "requeued.sh")),
        environ=job_environ(folder),
        cwd=folder,
    )
    slurm.wait_for((folder / "first-attempt-done").exists, "the first attempt", folder)
    slurm.run("scontrol", "requeue", job)

    slurm.wait_for(lambda: slurm.jobs(job)[0]["JobState"] == "PENDING", "the job back in the queue", folder)
    # SLURM would let it wait for two minutes. Within the second of the requeue nodes refuse the job as killed.
    slurm.run("scontrol", "update", f"jobid={job}", "StartTime=now+2")
    slurm.wait_for(lambda: slurm.jobs(job)[0]["JobState"] != "PENDING", "the second attempt", folder)
    (finished,) = slurm.wait_for_job(job, folder)
    return finished, ranks_in(folder)


def _by_attempt(ranks: list[Rank], label: str) -> list[list[Rank]]:
    chosen = [rank for rank in ranks if rank.label == label]
    return [[rank for rank in chosen if rank.resource["slurm.restart_count"] == restarts] for restarts in (0, 1)]


@pytest.mark.parametrize("label", ["own", "inherited"])
def test_a_requeue_raises_the_restart_count_and_changes_the_run_uuid(
    attempts: tuple[dict[str, str], list[Rank]], label: str
) -> None:
    """Each attempt has its own run UUID, said by the program or handed on by the batch script; the job's stays."""
    job, ranks = attempts
    first, second = _by_attempt(ranks, label)

    assert (len(first), len(second)) == (2, 2)
    assert {rank.resource["nv.dl.run.uuid"] for rank in first} == {run_uuid(job["JobId"], 0)}
    assert {rank.resource["nv.dl.run.uuid"] for rank in second} == {run_uuid(job["JobId"], 1)}
    assert {rank.resource["nv.dl.job.uuid"] for rank in (*first, *second)} == {job_uuid(job["JobId"])}
    assert {rank.resource["nemo.run.id"] for rank in (*first, *second)} == {job["JobId"]}


def test_both_attempts_say_what_slurm_says(attempts: tuple[dict[str, str], list[Rank]]) -> None:
    """``scontrol`` counts one restart; the variable is absent in the first attempt, where the count is 0."""
    job, ranks = attempts

    assert job["Restarts"] == "1"
    assert [problems for rank in ranks if (problems := contradictions(rank))] == []
    assert {(rank.environ.get("SLURM_RESTART_COUNT"), rank.slurm["slurm.restart_count"]) for rank in ranks} == {
        (None, 0),
        ("1", 1),
    }
