"""Resource attributes of a SLURM job."""

from __future__ import annotations

SLURM_JOB_ID = "slurm.job.id"
SLURM_JOB_ID_RAW = "slurm.job.id.raw"
SLURM_JOB_NAME = "slurm.job.name"
SLURM_JOB_USER = "slurm.job.user"
SLURM_JOB_ACCOUNT = "slurm.job.account"
SLURM_JOB_QOS = "slurm.job.qos"
SLURM_JOB_RESERVATION = "slurm.job.reservation"
SLURM_ARRAY_JOB_ID = "slurm.array.job_id"
SLURM_ARRAY_TASK_ID = "slurm.array.task_id"
SLURM_ARRAY_COUNT = "slurm.array.count"
SLURM_ARRAY_SLUID = "slurm.array.sluid"
SLURM_SLUID = "slurm.sluid"
SLURM_CLUSTER_NAME = "slurm.cluster.name"
SLURM_PARTITION = "slurm.partition"
SLURM_NNODES = "slurm.nnodes"
SLURM_NTASKS = "slurm.ntasks"
SLURM_RESTART_COUNT = "slurm.restart_count"
SLURM_SEGMENT = "slurm.segment"
SLURM_TOPOLOGY_ADDR = "slurm.topology.addr"
SLURM_TOPOLOGY_ADDR_PATTERN = "slurm.topology.addr_pattern"
SLURM_HEAD_NODE_NAME = "slurm.head_node.name"
SLURM_HET_SIZE = "slurm.het.size"
SLURM_HET_GROUP = "slurm.het.group"

# Ids are text: the one of an array element is "<array job>_<task>".
SLURM_FIELDS: dict[str, type[str] | type[int]] = {
    SLURM_JOB_ID: str,
    SLURM_JOB_ID_RAW: str,
    SLURM_JOB_NAME: str,
    SLURM_JOB_USER: str,
    SLURM_JOB_ACCOUNT: str,
    SLURM_JOB_QOS: str,
    SLURM_JOB_RESERVATION: str,
    SLURM_ARRAY_JOB_ID: str,
    SLURM_ARRAY_TASK_ID: str,
    SLURM_ARRAY_COUNT: int,
    SLURM_ARRAY_SLUID: str,
    SLURM_SLUID: str,
    SLURM_CLUSTER_NAME: str,
    SLURM_PARTITION: str,
    SLURM_NNODES: int,
    SLURM_NTASKS: int,
    SLURM_RESTART_COUNT: int,
    SLURM_SEGMENT: str,
    SLURM_TOPOLOGY_ADDR: str,
    SLURM_TOPOLOGY_ADDR_PATTERN: str,
    SLURM_HEAD_NODE_NAME: str,
    SLURM_HET_SIZE: int,
    SLURM_HET_GROUP: int,
}
