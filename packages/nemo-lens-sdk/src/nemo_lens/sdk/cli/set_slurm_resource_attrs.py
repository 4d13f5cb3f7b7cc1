"""Print the line that hands a SLURM job's attributes on to its processes, for eval.

It runs in every task of a job, so it imports no OpenTelemetry and starts fast.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from nemo_lens.api.carrier import VARIABLE, format_otel_resource_attributes, get_otel_resource_attributes
from nemo_lens.api.identity import derive_run_uuid
from nemo_lens.api.semconv import NV_DL_LAUNCH_CONTAINER_IMAGE, NV_DL_RUN_UUID, SLURM_JOB_ID_RAW
from nemo_lens.sdk.resources.slurm import derive_slurm, detect_slurm, in_task_step, is_of_slurm, same_in_all_tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_PROGRAM = "nemo-lens set-slurm-resource-attrs"

_EPILOG = f"""\
In the batch script, before the first srun:

  eval "$({_PROGRAM} --stage sbatch --container-image "$IMAGE")"

In each task, where the program itself would not see SLURM_* (in a container, for example):

  srun bash -c 'eval "$({_PROGRAM} --stage task)"; exec python train.py'

stages:
  sbatch  what is the same for every task of the job, the head node included. What SLURM says now replaces
          inherited slurm.* attributes: the shell that called sbatch may be part of another job.
  task    what this task sees, its node's place in the topology and its het group included. Inherited
          attributes win; what is missing is added.

Both add nv.dl.job.uuid and nv.dl.run.uuid, and keep whatever else was inherited. No rank is set: the program
says its own.

Standard output is the one line `export {VARIABLE}=...` and nothing else; warnings go to standard
error. Outside SLURM the line hands on what was inherited, so that a script runs in both places.
Exit code: 0, or 2 for wrong arguments."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``nemo-lens set-slurm-resource-attrs``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument(
        "--stage",
        required=True,
        choices=("sbatch", "task"),
        help="where this runs: the batch script, or a task of srun",
    )
    parser.add_argument(
        "--container-image",
        default="",
        metavar="IMG",
        help="set nv.dl.launch.container.image, over an inherited one; blank means not given",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the line; return 0."""
    attributes = {"sbatch": _of_the_job, "task": _of_this_task}[arguments.stage](os.environ)
    if arguments.container_image.strip():
        attributes[NV_DL_LAUNCH_CONTAINER_IMAGE] = arguments.container_image.strip()
    sys.stdout.write(f"export {VARIABLE}={shlex.quote(format_otel_resource_attributes(attributes))}\n")
    return 0


def _of_the_job(environ: Mapping[str, str]) -> dict[str, str | int]:
    inherited = get_otel_resource_attributes(environ)
    derived = derive_slurm(environ)
    if not derived:
        _warn("SLURM_JOB_ID is not set, this is no SLURM job: only what was inherited is handed on")
        return inherited
    if in_task_step(environ):
        _warn(
            "SLURM_STEP_ID says that srun started this, so the head node is not known and --stage task is meant. "
            "A batch script submitted from inside another task has that task's: unset SLURM_STEP_ID SLURM_STEPID"
        )
    of_another_job = inherited.get(SLURM_JOB_ID_RAW, derived[SLURM_JOB_ID_RAW]) != derived[SLURM_JOB_ID_RAW]
    kept = {key: value for key, value in inherited.items() if not (of_another_job and is_of_slurm(key))}
    return {**same_in_all_tasks({**kept, **derived}), **_run_uuid(environ)}


def _of_this_task(environ: Mapping[str, str]) -> dict[str, str | int]:
    inherited = get_otel_resource_attributes(environ)
    detected = detect_slurm(environ)
    if not detected:
        _warn("SLURM_JOB_ID is not set, this is no SLURM job: only what was inherited is handed on")
    of_this_run = _run_uuid(environ) if derive_slurm(environ) else {}
    # Inherited ones first: they keep their order, and detection has let those of slurm.* win that are not blank.
    return {**of_this_run, **inherited, **detected}


def _run_uuid(environ: Mapping[str, str]) -> dict[str, str]:
    uuid = derive_run_uuid(environ)
    return {} if uuid is None else {NV_DL_RUN_UUID: uuid}


def _warn(text: str) -> None:
    from nemo_lens.sdk.cli._terminal import Terminal  # start-up: only where there is something to say

    Terminal(sys.stderr).line(f"{_PROGRAM}: warning: {text}")
