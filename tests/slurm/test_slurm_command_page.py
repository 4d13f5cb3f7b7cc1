"""The scripts of ``docs/command-line.md`` and ``README.md``, run as they stand by a real SLURM."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.slurm import SlurmCluster
from support.slurm_ranks import job_environ
from support.written import Written

pytestmark = pytest.mark.timeout(150)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
STAGES, NEXT_JOB = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.M | re.S)
PROGRAM = """
import os
from nemo_lens.api import setup_telemetry, span_cm
with setup_telemetry(resource_attributes={"nv.dl.rank": int(os.environ["SLURM_PROCID"])}):
    with span_cm(os.environ.get("SPAN", "run")):
        pass
"""


def test_a_job_hands_on_its_attributes_and_submits_another(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Every task has what both stages publish; a job that an array element submits is not taken for that element."""
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    # Where the batch script of the next job begins with its stage, as the page says that every one should.
    (stage,) = re.findall(r"^eval .*--stage sbatch.*$", STAGES, flags=re.M)
    (tmp_path / "next.sh").write_text(f"#!/bin/bash\n{stage}\nSPAN=next python train.py\n", encoding="utf-8")
    (tmp_path / "job.sh").write_text(f"{STAGES}\n{NEXT_JOB}", encoding="utf-8")
    environ = {**job_environ(tmp_path), "IMAGE": "registry.example/train:1"}
    options = ("--array=3", "--nodes=2", "--ntasks-per-node=2")
    job = slurm.submit(*options, str(tmp_path / "job.sh"), environ=environ, cwd=tmp_path)
    slurm.wait_for_job(job, tmp_path)
    written = Written(tmp_path)
    slurm.wait_for(lambda: written.names().count("next") == 1 or None, "the job that the job submits", tmp_path)
    runs = [span["resource"] for span in written.spans() if span["name"] == "run"]
    assert sorted(resource["nv.dl.rank"] for resource in runs) == [0, 1, 2, 3]
    for resource in runs:
        assert resource["slurm.job.id"] == f"{job}_3"
        assert resource["nv.dl.launch.container.image"] == "registry.example/train:1"
        assert "slurm.head_node.name" in resource
    (submitted,) = [span["resource"] for span in written.spans() if span["name"] == "next"]
    assert submitted["slurm.job.id"].isdigit()
    assert submitted["slurm.job.id"] != job


def test_the_lines_of_the_readme(slurm: SlurmCluster, tmp_path: Path) -> None:
    """What the README shows of a batch script: every task knows the image, and the script's own stage arrives."""
    (script,) = re.findall(r"^```sh\n(.*?)^```$", README, flags=re.M | re.S)
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\nt0=$(date +%s.%N)\nt1=$(date +%s.%N)\n{script}", encoding="utf-8")
    environ = {**job_environ(tmp_path), "IMAGE": "registry.example/train:1"}
    job = slurm.submit("--nodes=2", "--ntasks-per-node=1", str(tmp_path / "job.sh"), environ=environ, cwd=tmp_path)
    slurm.wait_for_job(job, tmp_path)
    spans = Written(tmp_path).spans()
    assert sorted(span["name"] for span in spans) == ["run", "run", "stage data"]
    assert {span["resource"]["nv.dl.launch.container.image"] for span in spans} == {"registry.example/train:1"}
    assert {span["resource"]["nemo.run.id"] for span in spans} == {job}
