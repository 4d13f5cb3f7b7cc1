"""``nemo-lens set-slurm-resource-attrs``: the line for ``eval``, in the batch script and in the tasks."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from nemo_lens.api.carrier import format_otel_resource_attributes, parse_otel_resource_attributes
from support.slurm_expected import EXPECTED

RECORDED = Path(__file__).parents[1] / "slurm_env"
COMMAND = [sys.executable, "-m", "nemo_lens.sdk.cli", "set-slurm-resource-attrs"]
VARIABLE = "OTEL_RESOURCE_ATTRIBUTES"

# sha1sum of the URL namespace and nemo.lens.run/alpha/42/sr0, as UUID version 5.
JOB_UUID = "987db5dc-ce0d-512a-85fc-76ab42376852"
RUN_UUID = "07995aa4-d84b-5430-9c20-f5ea6b1cab15"

BATCH = {
    "SLURM_JOB_ID": "42",
    "SLURM_CLUSTER_NAME": "alpha",
    "SLURM_JOB_NAME": "train",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "4",
    "SLURMD_NODENAME": "gpu-a1",
    "SLURM_TOPOLOGY_ADDR": "gpu-a1",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
}
TASK = {**BATCH, "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "gpu-a2", "SLURM_TOPOLOGY_ADDR": "gpu-a2"}

OF_THE_JOB: dict[str, str | int] = {
    "slurm.job.id": "42",
    "slurm.job.id.raw": "42",
    "slurm.array.job_id": "42",
    "slurm.array.task_id": "0",
    "slurm.array.count": 1,
    "slurm.job.name": "train",
    "slurm.cluster.name": "alpha",
    "slurm.nnodes": 2,
    "slurm.ntasks": 4,
    "slurm.restart_count": 0,
    "nv.dl.job.uuid": JOB_UUID,
    "nv.dl.run.uuid": RUN_UUID,
}
HEAD: dict[str, str | int] = {"slurm.head_node.name": "gpu-a1"}
OF_THE_NODE: dict[str, str | int] = {"slurm.topology.addr": "gpu-a2", "slurm.topology.addr_pattern": "node"}

# What a shell, the format of the variable or a terminal could trip over.
AWKWARD = [
    "two  blanks",
    'it\'s "quoted" `id` $(id) $HOME \\ !',
    "a,b=c;d%41%zz",
    "größe 訓練 🚀",
    "line one\nline two\ttab",
    "*?[a-z]{1,2}~&|<>#()",
    "registry.example:5000/nemo/train:25.1@sha256:ab",
]


def environment(variables: Mapping[str, str], inherited: Mapping[str, object] | None = None) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "OTEL_", "LENS_", "NV_"))}
    if inherited is not None:
        clean[VARIABLE] = format_otel_resource_attributes(inherited)
    return {**clean, **variables}


def run(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=dict(env), capture_output=True, encoding="utf-8", timeout=50, check=False
    )


def published(*arguments: str, env: Mapping[str, str], warns: str | None = None) -> dict[str, str | int]:
    """Run the command, check what must always hold, and return the attributes that a shell makes of its line."""
    done = run(*arguments, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith(f"export {VARIABLE}=")
    if warns is None:
        assert done.stderr == ""
    else:
        assert warns in done.stderr
    (export, assignment) = shlex.split(done.stdout)
    assert export == "export"
    return parse_otel_resource_attributes(assignment.partition("=")[2])


def test_the_batch_script_publishes_what_all_tasks_share() -> None:
    """The job and its head node, nothing of this node, no rank."""
    assert published("--stage", "sbatch", env=environment(BATCH)) == OF_THE_JOB | HEAD


def test_a_task_publishes_what_it_sees() -> None:
    """Without a batch stage it says all: the job and its own node."""
    assert published("--stage", "task", env=environment(TASK)) == OF_THE_JOB | OF_THE_NODE


def test_a_task_adds_to_what_the_batch_script_published() -> None:
    """What the batch script said stays; the place of the task's node is added."""
    batch = published("--stage", "sbatch", "--container-image", "img:1", env=environment(BATCH))
    changed = {**TASK, "SLURM_NTASKS": "1", "SLURM_JOB_NAME": "bash"}  # as of a step with options of its own
    expected = OF_THE_JOB | HEAD | OF_THE_NODE | {"nv.dl.launch.container.image": "img:1"}
    assert published("--stage", "task", env=environment(changed, batch)) == expected
    # In a container without SLURM_* it is still the same job.
    assert published("--stage", "task", env=environment({}, batch)) == batch


@pytest.mark.parametrize("name", ["sbatch-array-task1.txt", "v26.05-mn4x2-sbatch.txt", "het-sbatch.txt"])
def test_the_batch_step_of_a_recorded_job(name: str) -> None:
    """It publishes what was recorded, but for what is the node's and, in a heterogeneous job, the component's."""
    lines = (RECORDED / name).read_text(encoding="utf-8").splitlines()
    slurm = dict(line.split("=", 1) for line in lines if line.startswith("SLURM"))
    unpublished = {"slurm.topology.addr", "slurm.topology.addr_pattern"}
    if name.startswith("het"):
        unpublished |= {"slurm.nnodes", "slurm.ntasks"}
    found = published("--stage", "sbatch", env=environment(slurm))
    assert found.pop("nv.dl.run.uuid")
    assert found == {key: value for key, value in EXPECTED[name].items() if key not in unpublished}


def test_a_task_of_a_heterogeneous_job_says_its_group() -> None:
    """Its group, and the nodes and tasks of its step, are added to what the batch script said."""
    slurm = dict(
        line.split("=", 1) for line in (RECORDED / "het-srun-rank2.txt").read_text(encoding="utf-8").splitlines()
    )
    inherited = {"slurm.job.id": "3", "slurm.job.id.raw": "3", "slurm.head_node.name": "gpu-a1"}
    found = published("--stage", "task", env=environment(slurm, inherited))
    assert found.pop("nv.dl.run.uuid")
    assert found == EXPECTED["het-srun-rank2.txt"] | {"slurm.head_node.name": "gpu-a1"}


OUTER = {
    "slurm.job.id": "7_3",
    "slurm.job.id.raw": "9",
    "slurm.array.job_id": "7",
    "slurm.job.reservation": "outer",
    "slurm.het.size": 2,
    "slurm.het.group": 1,
    "slurm.topology.addr": "outer-node",
    "slurm.head_node.name": "outer-node",
    "slurm.site.rack": "outer",
    "nv.dl.job.uuid": "outer",
    "nv.dl.run.uuid": "outer",
}
ANY = {"service.name": "trainer", "nemo.run.id": "r, 1", "nv.dl.launch.container.image": "outer:1"}


def test_the_batch_script_does_not_pass_for_the_job_that_submitted_it() -> None:
    """All that an outer job said of SLURM is gone; what else was inherited stays."""
    assert published("--stage", "sbatch", env=environment(BATCH, OUTER | ANY)) == OF_THE_JOB | HEAD | ANY


def test_a_task_warns_of_attributes_of_another_job() -> None:
    """There inherited attributes win, and the warning on standard error says how it should be."""
    found = published(
        "--stage", "task", env=environment(TASK, OUTER | ANY), warns="nemo-lens set-slurm-resource-attrs --stage sbatch"
    )
    assert found == OF_THE_JOB | OF_THE_NODE | OUTER | ANY


def test_what_slurm_does_not_say_can_be_said_by_hand() -> None:
    """Inherited attributes that name no other job, or this one, stay where SLURM says nothing else."""
    by_hand = {"slurm.sluid": "s1", "slurm.site.rack": "r7", "slurm.job.name": "other"}
    for inherited in (by_hand, by_hand | {"slurm.job.id.raw": "42"}):
        assert published("--stage", "sbatch", env=environment(BATCH, inherited)) == OF_THE_JOB | HEAD | by_hand | {
            "slurm.job.name": "train"
        }


def test_the_batch_script_hands_on_no_inherited_place_of_a_node() -> None:
    """Not even one of its own job: the tasks are on other nodes."""
    inherited = {"slurm.job.id.raw": "42", "slurm.topology.addr": "gpu-a9", "slurm.het.group": 0}
    assert published("--stage", "sbatch", env=environment(BATCH, inherited)) == OF_THE_JOB | HEAD


def test_the_stage_of_the_batch_script_in_a_task_is_told() -> None:
    """There a node is no head node: none is published, and a warning says what is meant."""
    found = published("--stage", "sbatch", env=environment(TASK), warns="SLURM_STEP_ID")
    assert found == OF_THE_JOB


@pytest.mark.parametrize("stage", ["sbatch", "task"])
def test_outside_slurm_the_script_runs_on(stage: str) -> None:
    """The line hands on what was inherited and the image, and a warning says that there is no SLURM job."""
    found = published("--stage", stage, env=environment({"SLURM_CLUSTER_NAME": "alpha"}, ANY), warns="no SLURM job")
    assert found == ANY
    image = ("--container-image", "img:2")
    env = environment({"TORCHELASTIC_RUN_ID": "e1"})
    assert published("--stage", stage, *image, env=env, warns="no SLURM job") == {
        "nv.dl.launch.container.image": "img:2"
    }
    assert run("--stage", stage, env=environment({})).stdout == f"export {VARIABLE}=''\n"


@pytest.mark.parametrize("stage", ["sbatch", "task"])
def test_the_image_given_wins_and_a_blank_one_is_none(stage: str) -> None:
    """An unset variable of the script does not wipe out an inherited image."""
    env = environment(BATCH, {"nv.dl.launch.container.image": "inherited:1"})
    for given, expected in (("img:2", "img:2"), ("", "inherited:1"), ("  ", "inherited:1")):
        found = published("--stage", stage, "--container-image", given, env=env)
        assert found["nv.dl.launch.container.image"] == expected


@pytest.mark.parametrize("stage", ["sbatch", "task"])
def test_running_twice_changes_nothing(stage: str) -> None:
    """The second line is the first to the letter."""
    variables = BATCH if stage == "sbatch" else TASK
    arguments = ("--stage", stage, "--container-image", AWKWARD[1])
    first = run(*arguments, env=environment(variables, ANY)).stdout
    again = {VARIABLE: shlex.split(first)[1].partition("=")[2]}
    assert run(*arguments, env=environment({**variables, **again})).stdout == first


@pytest.mark.parametrize("stage", ["sbatch", "task"])
@pytest.mark.parametrize("text", AWKWARD)
def test_bash_evaluates_any_value(stage: str, text: str) -> None:
    """Through a real ``eval`` of bash, a value reaches the program as it was, and nothing in it is run."""
    script = (
        f'eval "$({shlex.join(COMMAND)} --stage {stage} --container-image "$IMAGE")" || exit 3; '
        f"exec {shlex.quote(sys.executable)} -c 'import json, os; print(json.dumps(os.environ[\"{VARIABLE}\"]))'"
    )
    variables = {**BATCH, "SLURM_JOB_NAME": text, "SLURM_JOB_USER": text, "IMAGE": text, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=environment(variables, {"team.note": text}),
        capture_output=True,
        encoding="ascii",
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = parse_otel_resource_attributes(json.loads(done.stdout))
    for key in ("slurm.job.name", "slurm.job.user", "nv.dl.launch.container.image", "team.note"):
        assert found[key] == text


def test_what_cannot_be_read_is_told_and_left_behind() -> None:
    """A broken inherited variable costs its own pair, not the script."""
    env = environment({**BATCH, VARIABLE: "fine=1,broken,also=%zz"})
    assert published("--stage", "sbatch", env=env, warns="'broken' is dropped") == OF_THE_JOB | HEAD | {"fine": "1"}


@pytest.mark.parametrize(
    "arguments", [[], ["--stage"], ["--stage", "srun"], ["--stage", "task", "extra"], ["--container-image", "x"]]
)
def test_wrong_arguments_are_told_with_the_two_stages(arguments: list[str]) -> None:
    """Exit code 2, the two stages on standard error, and nothing for ``eval`` to run."""
    done = run(*arguments, env=environment(BATCH))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--stage {sbatch,task}" in done.stderr


def test_help_shows_where_each_stage_goes() -> None:
    """The two lines to copy are there, whole."""
    done = run("--help", env=environment({"COLUMNS": "60"}))
    assert done.returncode == 0
    assert '  eval "$(nemo-lens set-slurm-resource-attrs --stage sbatch --container-image "$IMAGE")"\n' in done.stdout
    assert '  srun bash -c \'eval "$(nemo-lens set-slurm-resource-attrs --stage task)"; exec ' in done.stdout


@pytest.mark.parametrize("stage", ["sbatch", "task"])
def test_no_opentelemetry_is_imported(stage: str) -> None:
    """It runs in every task: neither OpenTelemetry nor another third party's module is loaded for it."""
    program = (
        "import sys; before = set(sys.modules); from nemo_lens.sdk.cli import main; "
        f"code = main(['set-slurm-resource-attrs', '--stage', '{stage}', '--container-image', 'i']); "
        "added = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(code, sorted(added - set(sys.stdlib_module_names)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(BATCH), capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stderr == "0 ['nemo_lens']\n"
