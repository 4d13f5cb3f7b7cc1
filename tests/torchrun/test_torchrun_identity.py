"""Which rank and which run a process takes itself for when torchrun starts it."""

from __future__ import annotations

import re

import pytest
from torchrun_runs import STANDALONE, Finished, launch, needs_torch, torchrun

from support.written import Written

pytestmark = [needs_torch, pytest.mark.timeout(120)]

# Where the only rendezvous in a network of our own is.
C10D = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:29400", "--local-addr=127.0.0.1")
# What multi-node jobs of old start with. Without --rdzv-id, torchrun's own default of an id is "none".
STATIC = ("--master-addr=127.0.0.1", "--master-port=29400")
# As torchrun is started without a thought: one node, nothing about a rendezvous.
PLAIN: tuple[str, ...] = ()


def environ(written: Written, **more: str) -> dict[str, str]:
    return {"NEMO_LENS_ENABLED": "1", **written.environ, **more}


def check_ranks(job: Finished, written: Written, ranks: int, local: dict[int, int]) -> None:
    """Each process took itself for the rank that torchrun gave it, and its files say so too."""
    assert (job.code, job.stderr) == (0, "")
    assert sorted(job.ranks()) == list(range(ranks))
    run_id = job.common("nemo.run.id")
    for rank, said in job.ranks().items():
        expected = {
            "nv.dl.rank": rank,
            "nv.dl.world_size": ranks,
            "nv.dl.local_rank": local[rank],
            "service.instance.id": f"{run_id}-rank{rank}",
            "process.pid": said["pid"],
        }
        assert {key: said["resource"].get(key) for key in expected} == expected
    by_rank = {span["resource"]["nv.dl.rank"]: span["resource"] for span in written.spans() if span["name"] == "train"}
    assert by_rank == {rank: said["resource"] for rank, said in job.ranks().items()}


@pytest.mark.parametrize("options", [STANDALONE, PLAIN, (*PLAIN, "--rdzv-id=ignored")], ids=" ".join)
def test_ranks_are_found_without_the_program_saying_them(written: Written, options: tuple[str, ...]) -> None:
    """Rank, world size and local rank are torchrun's; so is the run id, which it makes up for all ranks of one node.

    It makes one up whatever ``--rdzv-id`` says, unless it is told where the rendezvous is.
    """
    job = torchrun("train", options=options, environ=environ(written))
    check_ranks(job, written, 4, local={rank: rank for rank in range(4)})
    assert job.common("nemo.run.id") == job.ranks()[0]["environ"]["TORCHELASTIC_RUN_ID"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", job.common("nemo.run.id"))
    assert written.names() == ["step"] * 4 + ["train"] * 4


def test_ranks_are_global_across_nodes(written: Written) -> None:
    """Two agents, as on two nodes: ranks count through, local ranks start anew, the run id is the rendezvous'."""
    job = launch("two_nodes", environ(written))
    assert job.fact("codes") == [0, 0], job.stderr
    check_ranks(job, written, 4, local={0: 0, 1: 1, 2: 0, 3: 1})
    assert job.common("nemo.run.id") == "both-nodes"
    nodes = {rank: said["environ"]["GROUP_RANK"] for rank, said in job.ranks().items()}
    assert nodes == {0: "0", 1: "0", 2: "1", 3: "1"}


def test_the_rank_is_the_one_torch_uses(written: Written) -> None:
    """With a process group over gloo, what telemetry calls the rank is what torch.distributed does."""
    job = torchrun("gloo", environ=environ(written))
    check_ranks(job, written, 4, local={rank: rank for rank in range(4)})
    sums = [span for span in written.spans() if span["name"] == "all_reduce"]
    assert {span["resource"]["nv.dl.rank"]: span["attributes"] for span in sums} == {
        rank: {"total": 6.0, "rank": rank} for rank in range(4)
    }


def test_the_program_and_what_was_inherited_beat_torchrun(written: Written) -> None:
    """A rank given in code wins, then OTEL_RESOURCE_ATTRIBUTES, then torchrun; the launcher's process is nobody's."""
    inherited = "nv.dl.rank=7,nv.dl.world_size=%2064,nv.dl.role=critic,process.pid=1,process.executable.name=launcher"
    job = torchrun("odd_ranks_say_theirs", environ=environ(written, OTEL_RESOURCE_ATTRIBUTES=inherited))
    assert (job.code, job.stderr) == (0, "")
    run_id = job.common("nemo.run.id")
    assert (job.common("nv.dl.world_size"), job.common("nv.dl.role")) == (64, "critic")
    assert job.common("process.executable.name") is None
    for rank, said in job.ranks().items():
        own = rank + 100 if rank % 2 else 7
        found = [said["resource"][key] for key in ("nv.dl.rank", "nv.dl.local_rank", "service.instance.id")]
        assert found == [own, rank, f"{run_id}-rank{own}"]
        assert said["resource"]["process.pid"] == said["pid"]


@pytest.mark.parametrize(
    ("options", "variables", "run_id"),
    [
        pytest.param((*C10D, "--rdzv-id=nightly"), {}, "nightly", id="rendezvous"),
        pytest.param((*STATIC, "--rdzv-id=nightly"), {}, "nightly", id="static rendezvous"),
        pytest.param((*C10D, "--rdzv-id=nightly"), {"SLURM_JOB_ID": "4711"}, "4711", id="SLURM"),
        pytest.param(
            (*C10D, "--rdzv-id=nightly"),
            {"SLURM_JOB_ID": "4711", "OTEL_RESOURCE_ATTRIBUTES": "nemo.run.id=of%20the%20launcher"},
            "of the launcher",
            id="inherited",
        ),
        pytest.param(
            STATIC,
            {"NEMO_LENS_RUN_ID": "explicit", "OTEL_RESOURCE_ATTRIBUTES": "nemo.run.id=inherited"},
            "explicit",
            id="explicit",
        ),
    ],
)
def test_ranks_share_the_run_id_of_whoever_has_one(
    written: Written, options: tuple[str, ...], variables: dict[str, str], run_id: str
) -> None:
    """Explicit, inherited, the SLURM job's, the rendezvous': the same on all ranks, and no warning."""
    job = torchrun("train", options=options, ranks=2, environ=environ(written, **variables))
    assert (job.code, job.stderr) == (0, "")
    assert job.common("nemo.run.id") == run_id
    assert sorted(said["resource"]["service.instance.id"] for said in job.ranks().values()) == [
        f"{run_id}-rank0",
        f"{run_id}-rank1",
    ]
    assert len({said["run_uuid"] for said in job.ranks().values()}) == 1


def test_without_a_common_id_each_rank_says_what_to_set(written: Written) -> None:
    """torchrun's default id is no id: each rank makes its own up, and one WARNING of each names NEMO_LENS_RUN_ID."""
    job = torchrun("train", options=STATIC, environ=environ(written))
    assert job.code == 0, job.stderr
    assert {said["environ"]["TORCHELASTIC_RUN_ID"] for said in job.ranks().values()} == {"none"}
    assert len({said["resource"]["nemo.run.id"] for said in job.ranks().values()}) == 4
    lines = job.stderr.splitlines()
    assert len(lines) == 4, job.stderr
    assert all("NEMO_LENS_RUN_ID" in line for line in lines), job.stderr
    assert {said["resource"]["nv.dl.rank"] for said in job.ranks().values()} == {0, 1, 2, 3}


def test_inside_a_slurm_job_the_rank_is_torchruns(written: Written) -> None:
    """Under ``srun torchrun`` all ranks of a node are one SLURM task: the job is SLURM's, the rank is not."""
    slurm = {
        "SLURM_JOB_ID": "4711",
        "SLURM_CLUSTER_NAME": "alpha",
        "SLURM_JOB_NAME": "pretrain",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_ID": "0",
    }
    job = torchrun("train", options=(*C10D, "--rdzv-id=nightly"), environ=environ(written, **slurm))
    check_ranks(job, written, 4, local={rank: rank for rank in range(4)})
    assert job.common("nemo.run.id") == "4711"
    assert len({said["job_uuid"] for said in job.ranks().values()}) == 1
    assert (job.common("slurm.job.id"), job.common("slurm.job.name")) == ("4711", "pretrain")


def test_one_trace_for_all_ranks_without_a_launcher(written: Written) -> None:
    """With ``single_trace`` the root spans of all ranks have one trace id, which each derives from the run id."""
    job = torchrun("train", environ=environ(written, NEMO_LENS_SINGLE_TRACE="1"))
    assert (job.code, job.stderr) == (0, "")
    roots = [span for span in written.spans() if span["name"] == "train"]
    assert [span["parent_id"] for span in roots] == [""] * 4
    assert len({span["trace_id"] for span in written.spans()}) == 1
    assert len({span["span_id"] for span in written.spans()}) == 8
