"""Jobs of every shape: what their processes say equals what SLURM says of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.slurm import SlurmCluster
from support.slurm_ranks import (
    PROGRAMS,
    Rank,
    contradictions,
    job_environ,
    job_uuid,
    ranks_in,
    told_by_scontrol,
    told_by_scontrol_of_components,
)

pytestmark = pytest.mark.timeout(150)


@dataclass(frozen=True)
class Job:
    """A job that has completed: its parts as ``scontrol`` shows them, and its processes."""

    parts: list[dict[str, str]]
    ranks: list[Rank]
    output: str


@pytest.fixture(scope="module")
def submitted(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path]]:
    """Submit all jobs at once; return the id and the folder of each."""
    slurm.run(
        *("scontrol", "create", "reservation", "ReservationName=big-run", "StartTime=now", "Duration=10"),
        *("Users=root", "Nodes=gpu-b[07-08]", "CoreCnt=4,4"),
    )
    jobs = {
        "two nodes": (
            *("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2", "--account=vision", "--reservation=big-run"),
            "tasks.sh",
        ),
        "array": ("--array=3,5,8", "--ntasks=1", "element.sh"),
        "heterogeneous": (
            *("--ntasks=1", "--nodelist=gpu-a1", ":"),
            *("--nodes=2", "--ntasks=2", "--nodelist=gpu-a2,gpu-b07", "heterogeneous.sh"),
        ),
    }
    ids = {}
    for name, (*options, script) in jobs.items():
        folder = tmp_path_factory.mktemp("job")
        command = (f"--job-name={name}", *options, str(PROGRAMS / script))
        ids[name] = (slurm.submit(*command, environ=job_environ(folder), cwd=folder), folder)
    return ids


def _completed(slurm: SlurmCluster, submitted: dict[str, tuple[str, Path]], name: str) -> Job:
    job, folder = submitted[name]
    parts = slurm.wait_for_job(job, folder)
    return Job(parts, ranks_in(folder), "".join(path.read_text() for path in folder.glob("*.out")))


@pytest.fixture(scope="module")
def two_nodes(slurm: SlurmCluster, submitted: dict[str, tuple[str, Path]]) -> Job:
    """Run two nodes with two tasks each, in a reservation."""
    return _completed(slurm, submitted, "two nodes")


@pytest.fixture(scope="module")
def array(slurm: SlurmCluster, submitted: dict[str, tuple[str, Path]]) -> Job:
    """Run an array of three elements, each with a process in the batch step and one in a step."""
    return _completed(slurm, submitted, "array")


@pytest.fixture(scope="module")
def heterogeneous(slurm: SlurmCluster, submitted: dict[str, tuple[str, Path]]) -> Job:
    """Run a component of one task, another of two on two nodes, in steps of all kinds."""
    return _completed(slurm, submitted, "heterogeneous")


def test_every_rank_says_what_scontrol_says(slurm: SlurmCluster, two_nodes: Job) -> None:
    """Each of the four ranks has exactly the attributes of its job, with its own node, and no head node in a step."""
    (job,) = two_nodes.parts
    nodes = slurm.nodes(job["NodeList"])

    assert [rank.slurm for rank in two_nodes.ranks] == [
        told_by_scontrol(slurm, job, node) for node in (nodes[0], nodes[0], nodes[1], nodes[1])
    ]
    assert job["Reservation"] == "big-run"
    assert job["Account"] == "vision"


def test_every_rank_says_what_its_environment_says(two_nodes: Job, array: Job, heterogeneous: Job) -> None:
    """No process of any job contradicts a variable that SLURM gave it."""
    ranks = [*two_nodes.ranks, *array.ranks, *heterogeneous.ranks]

    assert len(ranks) == 4 + 2 * 3 + 14
    assert [problems for rank in ranks if (problems := contradictions(rank))] == []


def test_all_ranks_of_a_job_share_its_run_and_differ_in_their_instance(two_nodes: Job) -> None:
    """Without any communication the ranks have one run id and one job UUID; each instance id has its own rank."""
    (job,) = two_nodes.parts
    resources = [rank.resource for rank in two_nodes.ranks]

    assert {resource["nemo.run.id"] for resource in resources} == {job["JobId"]}
    assert {resource["nv.dl.job.uuid"] for resource in resources} == {job_uuid(job["JobId"])}
    assert [resource["service.instance.id"] for resource in resources] == [
        f"{job['JobId']}-rank{rank}" for rank in range(4)
    ]
    assert [resource["nv.dl.world_size"] for resource in resources] == [4] * 4
    assert [resource["nv.dl.local_rank"] for resource in resources] == [0, 1, 0, 1]


def test_that_it_is_a_batch_job_is_no_deployment_environment(two_nodes: Job) -> None:
    """SLURM sets ENVIRONMENT=BATCH in each batch job, and no rank takes it for the environment it is deployed in."""
    assert [rank.resource.get("deployment.environment.name") for rank in two_nodes.ranks] == [None] * 4


def test_every_rank_counts_the_gpus_that_slurm_gave_it(two_nodes: Job) -> None:
    """With ``--gpus-per-node=2`` each rank sees two GPUs, by the variable that SLURM sets."""
    assert [rank.environ["CUDA_VISIBLE_DEVICES"] for rank in two_nodes.ranks] == ["0,1"] * 4
    assert [rank.resource["host.gpu.count"] for rank in two_nodes.ranks] == [2] * 4


def test_a_job_that_is_set_up_well_is_told_nothing(two_nodes: Job) -> None:
    """No rank writes a line to its output: no warning, and no notice."""
    assert [line for line in two_nodes.output.splitlines() if not line.startswith("srun: ")] == []


@pytest.mark.parametrize("label", ["batch step", "step"])
def test_array_elements_share_the_job_and_differ_in_the_element(slurm: SlurmCluster, array: Job, label: str) -> None:
    """Each element says what ``scontrol`` says; the batch step knows the head node, and hands it on to a step."""
    by_element = {job["ArrayTaskId"]: job for job in array.parts}
    parent = array.parts[0]["ArrayJobId"]
    ranks = [rank for rank in array.ranks if rank.label == label]

    assert {rank.slurm["slurm.job.id"]: rank.slurm for rank in ranks} == {
        f"{parent}_{element}": {
            **told_by_scontrol(slurm, job, job["BatchHost"]),
            "slurm.head_node.name": job["BatchHost"],
        }
        for element, job in by_element.items()
    }
    assert sorted(by_element) == ["3", "5", "8"]
    assert {rank.resource["nv.dl.job.uuid"] for rank in ranks} == {job_uuid(parent)}


# Step -> the components in it.
_STEPS = {
    "both": (0, 1),
    "first": (0,),
    "second": (1,),
    "program 0": (0, 1),
    "program 1": (0, 1),
    "both, handed on": (0, 1),
    "second, handed on": (1,),
}


def test_every_task_of_a_heterogeneous_job_knows_its_component(slurm: SlurmCluster, heterogeneous: Job) -> None:
    """In every kind of step a task has the leader's job id, its own component, and the counts of the step's part."""
    (leader,) = [part for part in heterogeneous.parts if part["HetJobOffset"] == "0"]
    ranks = heterogeneous.ranks

    assert [(rank.label, rank.slurm) for rank in ranks] == [
        (
            rank.label,
            {
                **told_by_scontrol_of_components(
                    slurm, heterogeneous.parts, _STEPS[rank.label], rank.environ["SLURMD_NODENAME"]
                ),
                **({"slurm.head_node.name": leader["BatchHost"]} if "handed on" in rank.label else {}),
            },
        )
        for rank in ranks
    ]
    assert [(rank.label, rank.slurm["slurm.het.group"]) for rank in ranks] == [
        *(("both", 0), ("both", 1), ("both", 1)),
        *(("both, handed on", 0), ("both, handed on", 1), ("both, handed on", 1)),
        ("first", 0),
        *(("program 0", 0), ("program 1", 1), ("program 1", 1)),
        *(("second", 1), ("second", 1)),
        *(("second, handed on", 1), ("second, handed on", 1)),
    ]


def test_all_steps_of_a_heterogeneous_job_share_its_run(heterogeneous: Job) -> None:
    """Components have job ids of their own, but every task in every step has the run id of the leader."""
    leader = heterogeneous.parts[0]["HetJobId"]

    assert len({part["JobId"] for part in heterogeneous.parts}) == 2
    assert {rank.resource["nemo.run.id"] for rank in heterogeneous.ranks} == {leader}
    assert {rank.resource["nv.dl.job.uuid"] for rank in heterogeneous.ranks} == {job_uuid(leader)}


def test_a_step_without_a_batch_job_says_what_scontrol_says(slurm: SlurmCluster, tmp_path: Path) -> None:
    """``srun`` from a shell outside any job makes a job of its own, with no batch step and so no head node."""
    slurm.run(
        *(
            "srun",
            "--nodes=2",
            "--ntasks=2",
            "--job-name=by hand",
            sys.executable,
            str(PROGRAMS / "rank.py"),
            "by hand",
        ),
        environ=job_environ(tmp_path),
        cwd=tmp_path,
    )

    ranks = ranks_in(tmp_path)
    (job,) = slurm.jobs(ranks[0].resource["nemo.run.id"])
    assert [rank.slurm for rank in ranks] == [
        told_by_scontrol(slurm, job, node) for node in slurm.nodes(job["NodeList"])
    ]
    assert job["JobName"] == "by hand"
