"""``docs/slurm.md`` as a reader follows it: its scripts are jobs of a real SLURM and run its program."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from support.otlp_decode import Record
from support.slurm import SlurmCluster
from support.slurm_ranks import job_environ, run_uuid
from support.written import Written

pytestmark = pytest.mark.timeout(150)

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "slurm.md").read_text(encoding="utf-8")
(DOCTOR_ON_NODES,) = re.findall(
    r"`(srun [^`]* nemo-lens doctor)`", (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
)
SCRIPT, DOCTOR, IN_CONTAINER, STAGES, TORCHRUN = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.M | re.S)
PROGRAM, LAUNCHER = re.findall(r"^```python\n(# \w+\.py\n.*?)^```$", PAGE, flags=re.M | re.S)
IMAGE = "registry.example/train:1"
# The page's job is larger than this cluster, whose nodes have two GPUs each: options on the command line win.
SMALLER = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a user who has saved the page's program there."""
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "launch.py").write_text(LAUNCHER, encoding="utf-8")
    stage = tmp_path / "stage_data.sh"
    stage.write_text("#!/bin/sh\nsleep 0.1\n", encoding="utf-8")
    stage.chmod(0o755)
    return tmp_path


def submit(slurm: SlurmCluster, folder: Path, script: str, *options: str) -> str:
    """Submit a script of the page, its exporter replaced by files; return the job's id."""
    path = folder / "job.sh"
    path.write_text(script if script.startswith("#!") else f"#!/bin/bash\n{script}", encoding="utf-8")
    environ = {**job_environ(folder), "IMAGE": IMAGE}
    return slurm.submit(*SMALLER, *options, str(path), environ=environ, cwd=folder)


def finished(slurm: SlurmCluster, folder: Path, script: str) -> str:
    """Run a script of the page to its end; return the job's id."""
    job = submit(slurm, folder, script)
    slurm.wait_for_job(job, folder)
    return job


def runs_of(folder: Path) -> list[Record]:
    """Return the resources of the ranks, by rank: those of the span of ``train.py``."""
    resources = [span["resource"] for span in Written(folder).spans() if span["name"] == "run"]
    return sorted(resources, key=lambda resource: resource["nv.dl.rank"])


def assert_ranks_of(job: str, folder: Path) -> None:
    """All four ranks are of this job's run, and know the image and the attempt."""
    resources = runs_of(folder)
    assert [resource["nv.dl.rank"] for resource in resources] == [0, 1, 2, 3]
    assert [resource["nv.dl.local_rank"] for resource in resources] == [0, 1, 0, 1]
    for resource in resources:
        assert resource["nv.dl.world_size"] == 4
        assert resource["nv.dl.role"] == "trainer"
        assert resource["nemo.run.id"] == job
        assert resource["slurm.job.id"] == job
        assert resource["nv.dl.launch.container.image"] == IMAGE
        assert resource["nv.dl.run.uuid"] == run_uuid(job, 0)
        assert "slurm.head_node.name" in resource


def test_the_first_script_exports_every_rank(slurm: SlurmCluster, folder: Path) -> None:
    """The script of the first screen is all it takes for the spans of every rank to be there."""
    job = finished(slurm, folder, SCRIPT)
    assert_ranks_of(job, folder)


def test_tasks_in_containers_say_the_same(slurm: SlurmCluster, folder: Path) -> None:
    """With the stage in each task the ranks say what they say without a container, though SLURM_* are gone."""
    hidden = "exec env -u SLURM_JOB_ID -u SLURM_CLUSTER_NAME -u SLURM_RESTART_COUNT python train.py"
    assert "exec python train.py" in IN_CONTAINER
    job = finished(slurm, folder, IN_CONTAINER.replace("exec python train.py", hidden))
    assert_ranks_of(job, folder)


def test_doctor_runs_on_a_node_and_the_job_goes_on(slurm: SlurmCluster, folder: Path) -> None:
    """One answer in the job's output, from inside the job, and no end of the script when nothing would arrive."""
    job = finished(slurm, folder, f"set -e\n{DOCTOR}\nNEMO_LENS_ENABLED=0\n{DOCTOR}\necho went on")
    said = (folder / f"{job}.out").read_text(encoding="utf-8")
    assert len(re.findall(rf"^  SLURM +job {job} on lens", said, flags=re.M)) == 2
    assert said.count("telemetry would not arrive: see above") == 1
    assert said.splitlines()[-1] == "went on"


def test_stages_of_the_script_arrive(slurm: SlurmCluster, folder: Path) -> None:
    """What the batch script measured is a tree of its own; in one trace with the ranks when it asks for that."""
    job = finished(slurm, folder, f"export NEMO_LENS_SINGLE_TRACE=1\n{STAGES}")
    written = Written(folder)
    whole, stage = written.span("job"), written.span("stage data")
    assert stage["parent_id"] == whole["span_id"]
    assert whole["resource"]["service.name"] == "launcher"
    assert {span["trace_id"] for span in written.spans()} == {whole["trace_id"]}
    assert {resource["nemo.run.id"] for resource in runs_of(folder)} == {job}


def test_the_launcher_of_the_page_is_the_parent(slurm: SlurmCluster, folder: Path) -> None:
    """Every rank that ``launch.py`` starts with srun continues its trace, in the job's run."""
    job = finished(slurm, folder, "python launch.py srun python train.py")
    launch = Written(folder).span("launch")
    runs = [span for span in Written(folder).spans() if span["name"] == "run"]
    assert [span["parent_id"] for span in runs] == [launch["span_id"]] * 4
    assert {resource["nemo.run.id"] for resource in (*runs_of(folder), launch["resource"])} == {job}


@pytest.mark.parametrize(("program", "script"), [("torchrun", TORCHRUN), ("nemo-lens", DOCTOR_ON_NODES)])
def test_once_a_node_is_once_a_node(program: str, script: str, slurm: SlurmCluster, folder: Path) -> None:
    """In a job of the page's shape, with a task for each GPU, torchrun and doctor (stood in for) start once a node."""
    stand_in = folder / "bin" / program
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\necho "$SLURMD_NODENAME" > "started-$SLURM_JOB_ID-$$"\n', encoding="utf-8")
    stand_in.chmod(0o755)
    job = finished(slurm, folder, f"PATH={stand_in.parent}:$PATH\n{script}")
    started = [path.read_text(encoding="utf-8").strip() for path in folder.glob(f"started-{job}-*")]
    assert sorted(started) == sorted(slurm.nodes(slurm.jobs(job)[0]["NodeList"]))
    assert len(started) == 2


def test_open_spans_arrive_when_the_job_is_cancelled(slurm: SlurmCluster, folder: Path) -> None:
    """``scancel`` ends the ranks by SIGTERM: each delivers the span it has open, marked as cut off."""
    waiting = "__import__('pathlib').Path(f'ready-{os.getpid()}').touch(); __import__('time').sleep(60)"
    (folder / "train.py").write_text(PROGRAM.replace("...  # train", waiting), encoding="utf-8")
    job = submit(slurm, folder, SCRIPT)
    slurm.wait_for(lambda: len(list(folder.glob("ready-*"))) == 4 or None, "four ranks at work", folder)
    slurm.run("scancel", job)
    slurm.wait_for(lambda: slurm.jobs(job)[0]["JobState"] == "CANCELLED" or None, "the end of the job", folder)

    def arrived() -> bool:
        with contextlib.suppress(ValueError):  # a line that is being written
            return len(runs_of(folder)) == 4
        return False

    slurm.wait_for(arrived, "the spans of four ranks", folder)
    cut = [span for span in Written(folder).spans() if span["name"] == "run"]
    assert {span["attributes"].get("nemo.span.truncated") for span in cut} == {True}
