"""The SLURM job this process belongs to: what SLURM's variables say of it, and what was inherited."""

from __future__ import annotations

import os
from collections.abc import Mapping

from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.api.carrier import get_otel_resource_attributes, parse_integer
from nemo_lens.api.identity import derive_job_uuid, variable_text
from nemo_lens.api.semconv import (
    NV_DL_JOB_UUID,
    SLURM_ARRAY_COUNT,
    SLURM_ARRAY_JOB_ID,
    SLURM_ARRAY_SLUID,
    SLURM_ARRAY_TASK_ID,
    SLURM_CLUSTER_NAME,
    SLURM_FIELDS,
    SLURM_HEAD_NODE_NAME,
    SLURM_HET_GROUP,
    SLURM_HET_SIZE,
    SLURM_JOB_ACCOUNT,
    SLURM_JOB_ID,
    SLURM_JOB_ID_RAW,
    SLURM_JOB_NAME,
    SLURM_JOB_QOS,
    SLURM_JOB_RESERVATION,
    SLURM_JOB_USER,
    SLURM_NNODES,
    SLURM_NTASKS,
    SLURM_PARTITION,
    SLURM_RESTART_COUNT,
    SLURM_SEGMENT,
    SLURM_SLUID,
    SLURM_TOPOLOGY_ADDR,
    SLURM_TOPOLOGY_ADDR_PATTERN,
)
from nemo_lens.sdk.resources.hostlist import hostlist_contains

# What an attribute is the same for. A heterogeneous job has several components, and the batch step, like a step of
# one het group, sees the numbers of its own component only.
_JOB, _COMPONENT, _NODE = "job", "component", "node"

# Attribute, variables (the first that is not blank), what is meant when there is none, what it is the same for.
_VARIABLES: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    (SLURM_JOB_ID, ("SLURM_JOB_ID",), "", _JOB),
    (SLURM_JOB_ID_RAW, ("SLURM_JOB_ID",), "", _JOB),
    (SLURM_ARRAY_JOB_ID, ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"), "", _JOB),
    (SLURM_ARRAY_TASK_ID, ("SLURM_ARRAY_TASK_ID",), "0", _JOB),
    (SLURM_ARRAY_COUNT, ("SLURM_ARRAY_TASK_COUNT",), "1", _JOB),
    (SLURM_JOB_NAME, ("SLURM_JOB_NAME",), "", _JOB),
    (SLURM_JOB_USER, ("SLURM_JOB_USER",), "", _JOB),
    (SLURM_JOB_ACCOUNT, ("SLURM_JOB_ACCOUNT",), "", _JOB),
    (SLURM_JOB_QOS, ("SLURM_JOB_QOS",), "", _JOB),
    (SLURM_JOB_RESERVATION, ("SLURM_JOB_RESERVATION",), "", _JOB),
    (SLURM_CLUSTER_NAME, ("SLURM_CLUSTER_NAME",), "", _JOB),
    (SLURM_PARTITION, ("SLURM_JOB_PARTITION", "SLURM_PARTITION"), "", _JOB),
    (SLURM_NNODES, ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), "", _COMPONENT),
    (SLURM_NTASKS, ("SLURM_NTASKS",), "", _COMPONENT),
    (SLURM_RESTART_COUNT, ("SLURM_RESTART_COUNT",), "0", _JOB),
    (SLURM_SEGMENT, ("SLURM_SEGMENT",), "", _JOB),
    (SLURM_SLUID, ("LENS_SLURM_SLUID", "NV_LAUNCH_SLUID"), "", _JOB),
    (SLURM_ARRAY_SLUID, ("LENS_SLURM_ARRAY_SLUID", "NV_LAUNCH_ARRAY_SLUID"), "", _JOB),
    (SLURM_TOPOLOGY_ADDR, ("SLURM_TOPOLOGY_ADDR",), "", _NODE),
    (SLURM_TOPOLOGY_ADDR_PATTERN, ("SLURM_TOPOLOGY_ADDR_PATTERN",), "", _NODE),
    (SLURM_HET_SIZE, ("SLURM_HET_SIZE",), "", _JOB),
)
_OF_A_NODE = frozenset({SLURM_HET_GROUP, *(attribute for attribute, _, _, scope in _VARIABLES if scope == _NODE)})
_OF_A_COMPONENT = frozenset(attribute for attribute, _, _, scope in _VARIABLES if scope == _COMPONENT)

# SLURM's own steps (batch, extern, interactive) have the ids -1 to -16. 26.05 writes the batch step's as -5, salloc's
# interactive step has 4294967290 in every version.
_FIRST_RESERVED_STEP = 2**32 - 16


def detect_slurm(environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """Return the attributes of the SLURM job this process belongs to.

    ``slurm.*`` and ``nv.dl.job.uuid`` inherited through ``OTEL_RESOURCE_ATTRIBUTES`` win key by key, and are enough
    where ``SLURM_JOB_ID`` is not set, in a container for example. One WARNING says when they are of another job.

    Args:
        environ: environment to read; default ``os.environ``.

    Returns:
        The attributes; empty outside SLURM.
    """
    env = os.environ if environ is None else environ
    inherited = {
        key: value
        for key, value in get_otel_resource_attributes(env).items()
        if is_of_slurm(key) and str(value).strip()
    }
    own = variable_text(env, "SLURM_JOB_ID")
    other = str(inherited.get(SLURM_JOB_ID_RAW, own)).strip()
    if own and other != own and other not in _component_ids(env):
        warn_once(
            ("another SLURM job", own, other),
            "OTEL_RESOURCE_ATTRIBUTES says SLURM job %s, and this is job %s: what it says wins, and telemetry carries "
            "the other job's attributes. Start the batch script with "
            'eval "$(nemo-lens set-slurm-resource-attrs --stage sbatch)", or unset OTEL_RESOURCE_ATTRIBUTES',
            other,
            own,
        )
    return {**derive_slurm(env), **inherited}


def derive_slurm(environ: Mapping[str, str]) -> dict[str, str | int]:
    """Return what SLURM's variables say to this process, ``nv.dl.job.uuid`` included, whatever it has inherited.

    Args:
        environ: environment to read.

    Returns:
        The attributes; empty without ``SLURM_JOB_ID``. Blank variables count as unset, and an integer that is none
        is left out.
    """
    if not variable_text(environ, "SLURM_JOB_ID"):
        return {}
    found: dict[str, str | int] = {}
    for attribute, variables, default, _ in _VARIABLES:
        text = next(filter(None, (variable_text(environ, name) for name in variables)), default)
        value = parse_integer(text) if SLURM_FIELDS[attribute] is int else text or None
        if value is not None:
            found[attribute] = value
    array, element = (variable_text(environ, f"SLURM_ARRAY_{name}") for name in ("JOB_ID", "TASK_ID"))
    if array and element:
        found[SLURM_JOB_ID] = f"{array}_{element}"
    head_node = variable_text(environ, "SLURMD_NODENAME")
    if head_node and not in_task_step(environ):
        found[SLURM_HEAD_NODE_NAME] = head_node
    components = _het_groups(environ, "SLURM_JOB_ID")
    if components and found[SLURM_JOB_ID_RAW] not in components.values():
        # sbatch, called inside a heterogeneous job, hands that job's variables on to one that has no components.
        found.pop(SLURM_HET_SIZE, None)
    elif SLURM_HET_SIZE in found:
        group = _het_group(environ)
        if group is not None:
            found[SLURM_HET_GROUP] = group
    found[NV_DL_JOB_UUID] = derive_job_uuid(environ)
    return found


def same_in_all_tasks(attributes: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return those of a job's attributes that are the same in all its tasks.

    Args:
        attributes: attributes as the batch step sees them.

    Returns:
        All but what belongs to a node and, in a heterogeneous job, to one of its components.
    """
    different = _OF_A_NODE | _OF_A_COMPONENT if SLURM_HET_SIZE in attributes else _OF_A_NODE
    return {key: value for key, value in attributes.items() if key not in different}


def is_of_slurm(key: str) -> bool:
    """Say whether an attribute describes a SLURM job."""
    return key.startswith("slurm.") or key == NV_DL_JOB_UUID


def in_task_step(environ: Mapping[str, str]) -> bool:
    """Say whether this is a task that ``srun`` started: not the batch script, nor the shell of ``salloc``.

    Args:
        environ: environment to read. A batch script submitted from inside a task looks like a task to SLURM before
            26.05: it has that task's ``SLURM_STEP_ID``.
    """
    return any(map(_is_of_a_task, (variable_text(environ, "SLURM_STEP_ID"), variable_text(environ, "SLURM_STEPID"))))


def _is_of_a_task(step: str) -> bool:
    if not step:
        return False
    number = parse_integer(step)
    return number is None or 0 <= number < _FIRST_RESERVED_STEP


def _het_group(environ: Mapping[str, str]) -> int | None:
    """Return the number of the component whose nodes this task's node is among; None when that is not just one.

    SLURM has no variable for it. The batch step belongs to the whole job and has none, and neither has a task on a
    node that two components share.
    """
    if not in_task_step(environ):
        return None
    node = variable_text(environ, "SLURMD_NODENAME")
    try:
        groups = [
            group
            for group, nodes in _het_groups(environ, "SLURM_JOB_NODELIST").items()
            if hostlist_contains(nodes, node)
        ]
    except ValueError as problem:
        debug_once("het group", "the het group of this task is not known: %s", problem)
        return None
    return groups[0] if len(groups) == 1 else None


def _component_ids(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the job ids of all components of this heterogeneous job."""
    ids = frozenset(_het_groups(environ, "SLURM_JOB_ID").values())
    return ids if variable_text(environ, "SLURM_JOB_ID") in ids else frozenset()


def _het_groups(environ: Mapping[str, str], variable: str) -> dict[int, str]:
    """Return what ``variable`` says of each component, by the component's number."""
    prefix = f"{variable}_HET_GROUP_"
    return {
        number: text
        for name in environ
        if name.startswith(prefix)
        and (number := parse_integer(name[len(prefix) :])) is not None
        and (text := variable_text(environ, name))
    }
