"""``set-slurm-resource-attrs`` in the batch script and in each task of a real job, with values that need quoting."""

from __future__ import annotations

import pytest

from nemo_lens.api.carrier import format_otel_resource_attributes
from support.slurm import SlurmCluster
from support.slurm_ranks import (
    PROGRAMS,
    Rank,
    contradictions,
    job_environ,
    job_uuid,
    ranks_in,
    run_uuid,
    told_by_scontrol,
)

pytestmark = pytest.mark.timeout(150)

NAME = """it's a "big", 50% größer = 100 $HOME `run` \\ 大; (a&b) | * ? #1"""
IMAGE = """registry.example/team/py torch:24.05+cu'12"4,x=1;y=$(id)`id`&é%20\\n!~*"""
# What the shell that submits the job has inherited from another job that it is part of, and what is its own.
STALE = {
    "slurm.job.id": "7_1",
    "slurm.job.id.raw": "9",
    "slurm.job.qos": "premium",
    "slurm.job.name": "another job",
    "slurm.restart_count": 5,
    "slurm.head_node.name": "elsewhere",
    "nv.dl.job.uuid": "another job's",
    "nv.dl.run.uuid": "another run's",
    "nv.dl.launch.container.image": "another:image",
    "nv.dl.provider.name": "a=b,c d%é",
    "team": "vision, \"speech\" & 'co'",
}


@pytest.fixture(scope="module")
def staged(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], list[Rank]]:
    """Run two nodes with two tasks each, submitted from inside another job: both stages, then the second alone."""
    folder = tmp_path_factory.mktemp("staged")
    inherited = {"IMAGE": IMAGE, "OTEL_RESOURCE_ATTRIBUTES": format_otel_resource_attributes(STALE)}
    job = slurm.submit(
        *(f"--job-name={NAME}", "--nodes=2", "--ntasks-per-node=2", str(PROGRAMS / "stages.sh")),
        environ={**job_environ(folder), **inherited},
        cwd=folder,
    )
    (finished,) = slurm.wait_for_job(job, folder)
    return finished, ranks_in(folder)


def _ranks(staged: tuple[dict[str, str], list[Rank]], label: str) -> list[Rank]:
    ranks = [rank for rank in staged[1] if rank.label == label]
    assert len(ranks) == 4
    return ranks


def test_the_attributes_of_both_stages_arrive_letter_by_letter(
    slurm: SlurmCluster, staged: tuple[dict[str, str], list[Rank]]
) -> None:
    """Job name and image survive shell, variable and SLURM; the batch host is the head node of every rank."""
    job, _ = staged
    ranks = _ranks(staged, "both")

    assert job["JobName"] == NAME
    assert [rank.slurm for rank in ranks] == [
        {
            **told_by_scontrol(slurm, job, rank.environ["SLURMD_NODENAME"]),
            "slurm.head_node.name": job["BatchHost"],
        }
        for rank in ranks
    ]
    assert {rank.slurm["slurm.job.name"] for rank in ranks} == {NAME}
    assert {rank.resource["nv.dl.launch.container.image"] for rank in ranks} == {IMAGE}


def test_each_task_says_its_own_node(slurm: SlurmCluster, staged: tuple[dict[str, str], list[Rank]]) -> None:
    """The topology is each task's, not what the batch step saw: two ranks on each node of the job."""
    first, second = slurm.nodes(staged[0]["NodeList"])

    nodes = [rank.slurm["slurm.topology.addr"] for rank in _ranks(staged, "both")]

    assert nodes == [first, first, second, second]


def test_the_batch_stage_replaces_what_another_job_left(staged: tuple[dict[str, str], list[Rank]]) -> None:
    """A shell inside another job may submit: nothing of that job is left, and what is no job's is handed on."""
    job, _ = staged
    resources = [rank.resource for rank in _ranks(staged, "both")]

    assert {resource["nv.dl.job.uuid"] for resource in resources} == {job_uuid(job["JobId"])}
    assert {resource["nv.dl.run.uuid"] for resource in resources} == {run_uuid(job["JobId"], 0)}
    assert {resource["team"] for resource in resources} == {STALE["team"]}
    assert {resource["nv.dl.provider.name"] for resource in resources} == {STALE["nv.dl.provider.name"]}


def test_the_task_stage_alone_says_all_but_the_head_node(
    slurm: SlurmCluster, staged: tuple[dict[str, str], list[Rank]]
) -> None:
    """Without the batch stage a task finds everything that SLURM tells a task, and both UUIDs."""
    job, _ = staged
    ranks = _ranks(staged, "task")

    assert [rank.slurm for rank in ranks] == [
        told_by_scontrol(slurm, job, rank.environ["SLURMD_NODENAME"]) for rank in ranks
    ]
    assert {rank.resource["nv.dl.launch.container.image"] for rank in ranks} == {IMAGE}
    assert {rank.resource["nv.dl.job.uuid"] for rank in ranks} == {job_uuid(job["JobId"])}
    assert {rank.resource["nv.dl.run.uuid"] for rank in ranks} == {run_uuid(job["JobId"], 0)}


@pytest.mark.parametrize("label", ["both", "task"])
def test_the_rank_stays_the_programs(staged: tuple[dict[str, str], list[Rank]], label: str) -> None:
    """Neither stage says a rank: what the program gives is there, and names its instance."""
    job, _ = staged
    ranks = _ranks(staged, label)

    assert [rank.resource["service.instance.id"] for rank in ranks] == [f"{job['JobId']}-rank{n}" for n in range(4)]
    assert [rank.resource["nv.dl.rank"] for rank in ranks] == [int(rank.environ["SLURM_PROCID"]) for rank in ranks]
    assert not any("nv.dl.rank" in rank.environ.get("OTEL_RESOURCE_ATTRIBUTES", "") for rank in ranks)
    assert [problems for rank in ranks if (problems := contradictions(rank))] == []
