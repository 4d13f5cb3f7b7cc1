"""What names this run and this process: run id, job and run UUIDs, process create time."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from nemo_lens.api._diagnostics import warn_once
from nemo_lens.api._text import NO_TEXT_LIMIT, clean_str
from nemo_lens.api.carrier import VARIABLE as CARRIER_VARIABLE
from nemo_lens.api.carrier import get_otel_resource_attributes
from nemo_lens.api.semconv import NEMO_RUN_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_ID_VARIABLE = "NEMO_LENS_RUN_ID"

# Made when this module is loaded, so that whatever is forked from this process has it too.
_RANDOM_RUN_ID = os.urandom(6).hex()


def ensure_run_id(run_id: str = "", environ: Mapping[str, str] | None = None) -> str:
    """Return the id of this run: the same in all its processes wherever something common can be found.

    The first that is not blank of: ``run_id``, ``NEMO_LENS_RUN_ID``, ``nemo.run.id`` of ``OTEL_RESOURCE_ATTRIBUTES``,
    ``SLURM_JOB_ID``, ``TORCHELASTIC_RUN_ID`` unless it is ``none``. Else 12 random hex digits, the same for every
    call in this process and its forks; with ``WORLD_SIZE`` above 1 one WARNING says that the other ranks have others.

    Args:
        run_id: id given explicitly.
        environ: the environment; default ``os.environ``.
    """
    return find_run_id(run_id, environ)[0]


def find_run_id(run_id: str = "", environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return the run id as :func:`ensure_run_id` does, and where it was found.

    Args:
        run_id: id given explicitly.
        environ: the environment; default ``os.environ``.

    Returns:
        The id, and the variable it came from, ``code`` when it was given or ``random`` when it was made up.
    """
    env = os.environ if environ is None else environ
    candidates = {
        "code": _clean(run_id or ""),
        RUN_ID_VARIABLE: variable_text(env, RUN_ID_VARIABLE),
        CARRIER_VARIABLE: str(get_otel_resource_attributes(env).get(NEMO_RUN_ID, "")).strip(),
        "SLURM_JOB_ID": variable_text(env, "SLURM_JOB_ID"),
        "TORCHELASTIC_RUN_ID": _torchelastic_run_id(env),
    }
    for source, found in candidates.items():
        if found:
            return found, source
    world_size = variable_text(env, "WORLD_SIZE")
    if world_size.isascii() and world_size.isdigit() and world_size.lstrip("0") not in ("", "1"):
        warn_once(
            "random run id",
            "no run id is known, and each of the %s ranks makes up its own: set %s to the same value on all of them",
            world_size,
            RUN_ID_VARIABLE,
        )
    return _RANDOM_RUN_ID, "random"


def derive_job_uuid(environ: Mapping[str, str] | None = None) -> str:
    """Return the UUID of the SLURM job: one for all elements of an array, all restarts and all processes.

    It is the UUID version 5 of the URL namespace over ``nemo.lens.job/<cluster or nocluster>/<job key>``; the job key
    is ``SLURM_ARRAY_JOB_ID``, else ``SLURM_JOB_ID``, else ``nojob``.

    Args:
        environ: the environment; default ``os.environ``.
    """
    env = os.environ if environ is None else environ
    return _uuid(f"nemo.lens.job/{_cluster(env)}/{_job_key(env) or 'nojob'}")


def derive_run_uuid(environ: Mapping[str, str] | None = None, *, run_id: str | None = None) -> str | None:
    """Return the UUID of this attempt at running the job: another one after a requeue or an elastic restart.

    Under SLURM it is the UUID version 5 of the URL namespace over ``nemo.lens.run/<cluster>/<job key>``, with
    ``/sr<SLURM_RESTART_COUNT or 0>`` outside arrays and ``/te<TORCHELASTIC_RESTART_COUNT>`` where that is set;
    elsewhere over ``nemo.lens.run/local/<run id>/te<TORCHELASTIC_RESTART_COUNT or 0>``.

    Args:
        environ: the environment; default ``os.environ``.
        run_id: run id outside SLURM; default ``TORCHELASTIC_RUN_ID``.

    Returns:
        The UUID; None outside SLURM without a run id.
    """
    env = os.environ if environ is None else environ
    elastic = variable_text(env, "TORCHELASTIC_RESTART_COUNT")
    job = _job_key(env)
    if job:
        parts = ["nemo.lens.run", _cluster(env), job]
        if not variable_text(env, "SLURM_ARRAY_JOB_ID"):
            parts.append(f"sr{variable_text(env, 'SLURM_RESTART_COUNT') or 0}")
        if elastic:
            parts.append(f"te{elastic}")
        return _uuid("/".join(parts))
    run = _clean(run_id or "") or _torchelastic_run_id(env)
    return _uuid(f"nemo.lens.run/local/{run}/te{elastic or 0}") if run else None


def linux_process_create_time(pid: int | None = None) -> float | None:
    """Return when a process was started, as Linux says in ``/proc`` (see proc(5)).

    Args:
        pid: process id; default this process.

    Returns:
        Seconds since the epoch, to the whole second of the boot time; None where it cannot be read.
    """
    if pid is not None and (type(pid) is not int or pid <= 0):
        return None
    try:
        with Path(f"/proc/{'self' if pid is None else pid}/stat").open("rb") as file:
            # The name in parentheses may itself hold blanks and parentheses; the start time is field 22.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with Path("/proc/stat").open("rb") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime "))
        return boot + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration, AttributeError):
        return None


def variable_text(env: Mapping[str, str], name: str) -> str:
    """Return what a variable holds, without blanks around it and as UTF-8; empty when it is not set."""
    return _clean(env.get(name, ""))


def _clean(text: str) -> str:
    # Bytes that are no UTF-8 arrive as lone surrogates, which neither a UUID nor an exporter can encode.
    return clean_str(text.strip(), NO_TEXT_LIMIT)


def _torchelastic_run_id(env: Mapping[str, str]) -> str:
    # "none" is torchrun's own default, the same for every run.
    run_id = variable_text(env, "TORCHELASTIC_RUN_ID")
    return "" if run_id.lower() == "none" else run_id


def _cluster(env: Mapping[str, str]) -> str:
    return variable_text(env, "SLURM_CLUSTER_NAME") or "nocluster"


def _job_key(env: Mapping[str, str]) -> str:
    return variable_text(env, "SLURM_ARRAY_JOB_ID") or variable_text(env, "SLURM_JOB_ID")


def _uuid(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, name))
