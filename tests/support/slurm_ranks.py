"""What the processes of a SLURM job left behind, and what SLURM itself says that they should have said."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from support.otlp_decode import Record
from support.slurm import SlurmCluster
from support.written import Written

PROGRAMS = Path(__file__).parents[1] / "slurm" / "programs"


@dataclass(frozen=True)
class Rank:
    """A process of a job: the span it recorded, and the environment it saw."""

    span: Record
    environ: Mapping[str, str]

    @property
    def label(self) -> str:
        """Which of a job's programs this was."""
        return str(self.span["attributes"]["label"])

    @property
    def resource(self) -> Record:
        """The attributes of the process."""
        resource: Record = self.span["resource"]
        return resource

    @property
    def slurm(self) -> Record:
        """The attributes of its SLURM job."""
        return {name: value for name, value in self.resource.items() if name.startswith("slurm.")}


def job_environ(folder: Path) -> dict[str, str]:
    """Return the variables that the job scripts use: this interpreter, and telemetry written into ``folder``."""
    binaries = Path(sys.executable).parent
    return {
        **Written(folder).environ,
        "NEMO_LENS_ENABLED": "1",
        "NEMO_LENS_METRICS_ENABLED": "0",
        "PATH": os.pathsep.join((str(binaries), os.environ.get("PATH", os.defpath))),
        "PYTHON": sys.executable,
        "PYTHONWARNINGS": "error",
        "PROGRAMS": str(PROGRAMS),
    }


def ranks_in(folder: Path, label: str | None = None) -> list[Rank]:
    """Return the processes that wrote into ``folder``, by rank; with a ``label``, those of one program."""
    ranks = [
        Rank(span, json.loads((folder / span["attributes"]["environment"]).read_text(encoding="utf-8")))
        for span in Written(folder).spans()
        if span["name"] == "rank"
    ]
    chosen = [rank for rank in ranks if label in (None, rank.label)]
    return sorted(chosen, key=lambda rank: (rank.label, rank.resource["nv.dl.rank"]))


def job_uuid(job: str) -> str:
    """Return the UUID of a job of the test's cluster: by the array's id for an element, by the leader's for a part."""
    return str(uuid5(NAMESPACE_URL, f"nemo.lens.job/lens/{job}"))


def run_uuid(job: str, restarts: int) -> str:
    """Return the UUID of an attempt at a job that is no array element."""
    return str(uuid5(NAMESPACE_URL, f"nemo.lens.run/lens/{job}/sr{restarts}"))


def told_by_scontrol(slurm: SlurmCluster, job: Mapping[str, str], node: str) -> dict[str, Any]:
    """Return the attributes that a process on ``node`` should have, by ``scontrol show job``; no het job."""
    array = job.get("ArrayJobId")
    element = job.get("ArrayTaskId", "0")
    told = {
        "slurm.job.id": f"{array}_{element}" if array else job["JobId"],
        "slurm.job.id.raw": job["JobId"],
        "slurm.array.job_id": array or job["JobId"],
        "slurm.array.task_id": element,
        "slurm.array.count": len(slurm.jobs(array)) if array else 1,
        "slurm.job.name": job["JobName"],
        "slurm.job.user": job["UserId"].partition("(")[0],
        "slurm.job.account": job["Account"],
        "slurm.job.reservation": job.get("Reservation", "(null)"),
        "slurm.cluster.name": slurm.config("ClusterName"),
        "slurm.partition": job["Partition"],
        "slurm.nnodes": int(job["NumNodes"]),
        "slurm.ntasks": int(job["NumTasks"]),
        "slurm.restart_count": int(job["Restarts"]),
        "slurm.topology.addr": node,
        "slurm.topology.addr_pattern": "node",
    }
    return {name: value for name, value in told.items() if value != "(null)"}


def told_by_scontrol_of_components(
    slurm: SlurmCluster, components: Sequence[Mapping[str, str]], groups: Sequence[int], node: str
) -> dict[str, Any]:
    """Return what a process on ``node`` should say in a step over the ``groups`` of a heterogeneous job."""
    leader = next(each for each in components if each["HetJobOffset"] == "0")
    in_step = [each for each in components if int(each["HetJobOffset"]) in groups]
    (here,) = [each for each in in_step if node in slurm.nodes(each["NodeList"])]
    return {
        **told_by_scontrol(slurm, leader, node),
        "slurm.nnodes": sum(int(each["NumNodes"]) for each in in_step),
        "slurm.ntasks": sum(int(each["NumTasks"]) for each in in_step),
        "slurm.het.size": len(components),
        "slurm.het.group": int(here["HetJobOffset"]),
    }


# Attribute -> the variable that says the same in so many words.
_ENVIRONMENT = {
    "slurm.job.id.raw": "SLURM_JOB_ID",
    "slurm.array.job_id": "SLURM_ARRAY_JOB_ID",
    "slurm.array.task_id": "SLURM_ARRAY_TASK_ID",
    "slurm.array.count": "SLURM_ARRAY_TASK_COUNT",
    "slurm.job.name": "SLURM_JOB_NAME",
    "slurm.job.user": "SLURM_JOB_USER",
    "slurm.job.account": "SLURM_JOB_ACCOUNT",
    "slurm.job.reservation": "SLURM_JOB_RESERVATION",
    "slurm.cluster.name": "SLURM_CLUSTER_NAME",
    "slurm.partition": "SLURM_JOB_PARTITION",
    "slurm.nnodes": "SLURM_JOB_NUM_NODES",
    "slurm.ntasks": "SLURM_NTASKS",
    "slurm.restart_count": "SLURM_RESTART_COUNT",
    "slurm.topology.addr": "SLURMD_NODENAME",
    "slurm.het.size": "SLURM_HET_SIZE",
}


def contradictions(rank: Rank) -> dict[str, tuple[object, str]]:
    """Return where a process says other than its environment did: attribute to what it said, and should have."""
    pairs = {
        name: (rank.resource.get(name), rank.environ[variable])
        for name, variable in _ENVIRONMENT.items()
        if rank.environ.get(variable)
    }
    return {name: (said, told) for name, (said, told) in pairs.items() if str(said) != told}
