"""``nemo-lens doctor`` on where it runs: machine, job, run, and the resource with the origin of each attribute."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from nemo_lens.sdk.resources import detect_slurm
from support.doctor_run import doctor

RECORDED = Path(__file__).parents[1] / "slurm_env"
CONSOLE = {"NEMO_LENS_EXPORTER": "console"}


def test_inside_a_slurm_job() -> None:
    """Job, run id and attributes are what set-up would find, each with where it was found."""
    run = doctor(
        **CONSOLE,
        SLURM_JOB_ID="4711",
        SLURM_JOB_NAME="train",
        SLURM_CLUSTER_NAME="eos",
        SLURM_PROCID="3",
        SLURM_NTASKS="8",
        SLURM_STEP_ID="0",
        OTEL_RESOURCE_ATTRIBUTES="slurm.job.name=inherited",
    )
    assert run.code == 0
    where = run.report["surroundings"]
    assert where["slurm"]["slurm.job.id"] == "4711"
    assert where["run_id"] == {"value": "4711", "origin": "SLURM_JOB_ID"}
    assert where["rank"] == {"value": None, "origin": None}
    assert run.attribute("slurm.cluster.name") == ("eos", "slurm detection")
    assert run.attribute("slurm.job.name") == ("inherited", "OTEL_RESOURCE_ATTRIBUTES")
    assert run.attribute("nemo.run.id") == ("4711", "run id")


@pytest.mark.parametrize("name", ["gpu2x2-srun-rank1", "sbatch-array-task2"])
def test_in_the_environment_of_a_job_that_ran(name: str) -> None:
    """What it says in the environment that a real job saw is what detection says."""
    lines = (RECORDED / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    variables = dict(line.split("=", 1) for line in lines)
    run = doctor(**{**variables, **CONSOLE})
    assert run.code == 0
    expected = detect_slurm(variables)
    assert run.report["surroundings"]["slurm"] == expected
    assert run.attribute("slurm.job.id") == (expected["slurm.job.id"], "slurm detection")
    assert run.report["surroundings"]["run_id"]["origin"] == "SLURM_JOB_ID"


def test_every_attribute_has_its_origin() -> None:
    """The environment, the configuration, detection and OpenTelemetry itself."""
    run = doctor(
        **CONSOLE,
        NEMO_LENS_RUN_ID="r1",
        NEMO_LENS_SERVICE_NAME="trainer",
        NEMO_LENS_USER_ID="jo",
        OTEL_RESOURCE_ATTRIBUTES="nv.dl.rank=3,nemo.user.id=inherited,process.pid=1",
    )
    assert run.attribute("nemo.run.id") == ("r1", "run id")
    assert run.report["surroundings"]["run_id"] == {"value": "r1", "origin": "NEMO_LENS_RUN_ID"}
    assert run.report["surroundings"]["rank"] == {"value": 3, "origin": "OTEL_RESOURCE_ATTRIBUTES"}
    assert run.attribute("service.name") == ("trainer", "NEMO_LENS_SERVICE_NAME")
    assert run.attribute("service.instance.id") == ("r1-rank3", "run id and rank")
    assert run.attribute("nemo.user.id") == ("inherited", "OTEL_RESOURCE_ATTRIBUTES")
    assert run.attribute("host.name") == (socket.gethostname(), "local detection")
    assert run.attribute("process.pid")[0] != 1
    assert run.attribute("telemetry.sdk.name") == ("opentelemetry", "OpenTelemetry")


def test_under_torchrun() -> None:
    """The rank is torchelastic's, and so is the run id."""
    run = doctor(**CONSOLE, TORCHELASTIC_RUN_ID="job7", RANK="5", WORLD_SIZE="8", LOCAL_RANK="1")
    assert run.report["surroundings"]["rank"] == {"value": 5, "origin": "torchelastic"}
    assert run.report["surroundings"]["run_id"] == {"value": "job7", "origin": "TORCHELASTIC_RUN_ID"}


def test_ranks_that_have_no_common_run_id() -> None:
    """What set-up would warn of is a warning here."""
    run = doctor(**CONSOLE, WORLD_SIZE="8", RANK="5")
    assert run.code == 0
    assert run.report["surroundings"]["run_id"]["origin"] == "random"
    assert "NEMO_LENS_RUN_ID" in run.finding("surroundings")["message"]


def test_gpus_and_why() -> None:
    """How many there are, and who says so."""
    run = doctor(**CONSOLE, CUDA_VISIBLE_DEVICES="0,1")
    assert run.report["surroundings"]["gpus"] == {"count": 2, "origin": "CUDA_VISIBLE_DEVICES=0,1"}
    assert doctor(**CONSOLE).report["surroundings"]["gpus"]["origin"]


def test_inside_a_pod() -> None:
    """The pod is what the downward API says."""
    run = doctor(**CONSOLE, KUBERNETES_SERVICE_HOST="10.0.0.1", POD_NAME="trainer-0", POD_NAMESPACE="ml")
    assert run.report["surroundings"]["kubernetes"]["k8s.pod.name"] == "trainer-0"
    assert run.attribute("k8s.namespace.name") == ("ml", "kubernetes detection")


def test_attributes_that_cannot_be_read() -> None:
    """A pair of OTEL_RESOURCE_ATTRIBUTES that is dropped is a warning, once."""
    run = doctor(**CONSOLE, OTEL_RESOURCE_ATTRIBUTES="a=1,nonsense")
    assert run.code == 0
    assert "nonsense" in run.finding("surroundings")["message"]
