"""``docs/torchrun.md``, and what else the guides start with torchrun, as a reader follows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torchrun_runs import QUIET, needs_torch

from support.all_signals import clean_environ
from support.network import own_network
from support.otlp_decode import Record
from support.written import Written

pytestmark = [needs_torch, pytest.mark.timeout(150)]

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "torchrun.md").read_text(encoding="utf-8")
FIRST, SEVERAL_NODES, IN_SLURM = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.M | re.S)
PROGRAM = re.findall(r"^```python\n(# train\.py\n.*?)^```$", PAGE, flags=re.M | re.S)[0]


def run(folder: Path, script: str) -> None:
    """Run a script in a network of its own; every process writes its telemetry to ``folder``."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        [
            *own_network("torch's stores bind"),
            "bash",
            "-euc",
            script,
        ],
        cwd=folder,
        env=clean_environ({**QUIET, **Written(folder).environ, "NEMO_LENS_ENABLED": "1", "PATH": path}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "would not arrive" not in done.stderr


def ranks_after(folder: Path, script: str, ranks: int) -> list[Record]:
    """Run a script of the page with fewer ranks on each node; return the resources of those that ran, by rank."""
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    run(folder, script.replace("--nproc-per-node 8", f"--nproc-per-node {ranks}"))
    resources = [span["resource"] for span in Written(folder).spans() if span["name"] == "run"]
    return sorted(resources, key=lambda resource: resource["nv.dl.rank"])


def test_the_first_commands_export_every_rank(tmp_path: Path) -> None:
    """Three variables and a torchrun: every rank is there and knows its number, and all are of one run."""
    resources = ranks_after(tmp_path, FIRST, 2)
    assert [resource["nv.dl.rank"] for resource in resources] == [0, 1]
    assert {resource["nv.dl.world_size"] for resource in resources} == {2}
    assert {resource["nv.dl.role"] for resource in resources} == {"trainer"}
    assert len({resource["nemo.run.id"] for resource in resources}) == 1


def test_two_nodes_are_one_run(tmp_path: Path) -> None:
    """The command of several nodes, started twice as on two nodes: ranks of both have the run id that it gives."""
    script = f"export HEAD=127.0.0.1\nnode() {{\n{SEVERAL_NODES}}}\nnode & one=$!\nnode & two=$!\nwait $one\nwait $two"
    resources = ranks_after(tmp_path, script, 1)
    assert [resource["nv.dl.rank"] for resource in resources] == [0, 1]
    (run_id,) = {resource["nemo.run.id"] for resource in resources}
    assert re.fullmatch(r"nightly-\d{4}-\d\d-\d\d", run_id)


def test_in_a_slurm_job_the_rank_is_torchruns(tmp_path: Path) -> None:
    """srun (stood in for) starts a torchrun: the ranks are those of torchrun, and the run is that of the job."""
    stand_ins = (
        "export SLURM_JOB_ID=4711 SLURM_JOB_NODELIST=localhost SLURM_NNODES=1 SLURM_PROCID=0 SLURM_NTASKS=1\n"
        'scontrol() { echo 127.0.0.1; }\nsrun() { while [[ $1 == --* ]]; do shift; done; "$@"; }\n'
    )
    resources = ranks_after(tmp_path, stand_ins + IN_SLURM, 2)
    assert [resource["nv.dl.rank"] for resource in resources] == [0, 1]
    assert {(resource["nemo.run.id"], resource["slurm.job.id"]) for resource in resources} == {("4711", "4711")}


def test_the_page_of_slurm_starts_it_alike() -> None:
    """Both pages have the same lines for torchrun in a SLURM job."""
    assert IN_SLURM in (DOCS / "slurm.md").read_text(encoding="utf-8")


def test_the_page_of_torch_distributed_sends_a_context_along(tmp_path: Path) -> None:
    """The program of ``docs/integrations/nccl.md``: the second stage's span links to the first one's."""
    page = (DOCS / "integrations" / "nccl.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```py\n(# two_stages\.py\n.*?)^```$", page, flags=re.M | re.S)
    (command,) = re.findall(r"`(torchrun .*two_stages\.py)`", page)
    (tmp_path / "two_stages.py").write_text(program, encoding="utf-8")
    run(tmp_path, command)
    first, second = sorted(Written(tmp_path).spans(), key=lambda span: span["resource"]["nv.dl.rank"])
    assert {first["name"], second["name"]} == {"forward"}
    assert [(link["trace_id"], link["span_id"]) for link in second["links"]] == [(first["trace_id"], first["span_id"])]
