"""What is to be detected in each environment of ``tests/slurm_env``, written out from ``scontrol`` and the files.

A job's attributes stand once, and each of its files says what is its own: its node, the head node in the batch step.
The job UUIDs are the ``sha1sum`` of the URL namespace and ``nemo.lens.job/<cluster>/<job>``, as version 5.
"""

from __future__ import annotations

Attributes = dict[str, str | int]

_NO_ARRAY: Attributes = {"slurm.array.task_id": "0", "slurm.array.count": 1}
_FIRST_RUN: Attributes = {"slurm.restart_count": 0}
_CLUSTER: Attributes = {
    "slurm.cluster.name": "probe",
    "slurm.job.user": "root",
    "slurm.topology.addr_pattern": "node",
}

_PLAIN: Attributes = (
    _CLUSTER
    | _NO_ARRAY
    | _FIRST_RUN
    | {
        "slurm.job.id": "1",
        "slurm.job.id.raw": "1",
        "slurm.array.job_id": "1",
        "slurm.job.name": "plain-job",
        "slurm.nnodes": 1,
        "nv.dl.job.uuid": "4a050c7a-20e1-5316-baa0-9dd03778c78a",
    }
)
_SRUN_ALONE: Attributes = (
    _CLUSTER
    | _NO_ARRAY
    | _FIRST_RUN
    | {
        "slurm.job.id": "2",
        "slurm.job.id.raw": "2",
        "slurm.array.job_id": "2",
        "slurm.nnodes": 1,
        "slurm.ntasks": 1,
        "nv.dl.job.uuid": "58f0f82c-a010-5674-8b62-a33dfbbe5aa8",
    }
)
_ARRAY: Attributes = (
    _CLUSTER
    | _FIRST_RUN
    | {
        "slurm.array.job_id": "3",
        "slurm.array.count": 4,
        "slurm.job.name": "array-job",
        "slurm.nnodes": 1,
        "nv.dl.job.uuid": "0461fb81-10eb-5506-9e9d-16b03959c379",
    }
)
# The last element has the array's own job id.
_ELEMENTS: tuple[Attributes, ...] = (
    {"slurm.job.id": "3_0", "slurm.job.id.raw": "4", "slurm.array.task_id": "0"},
    {"slurm.job.id": "3_1", "slurm.job.id.raw": "5", "slurm.array.task_id": "1"},
    {"slurm.job.id": "3_2", "slurm.job.id.raw": "6", "slurm.array.task_id": "2"},
    {"slurm.job.id": "3_3", "slurm.job.id.raw": "3", "slurm.array.task_id": "3"},
)
_FOUR_NODES: Attributes = (
    _CLUSTER
    | _NO_ARRAY
    | _FIRST_RUN
    | {
        "slurm.job.id": "1",
        "slurm.job.id.raw": "1",
        "slurm.array.job_id": "1",
        "slurm.job.name": "mn-train",
        "slurm.partition": "train",
        "slurm.nnodes": 4,
        "slurm.ntasks": 8,
        "nv.dl.job.uuid": "4a050c7a-20e1-5316-baa0-9dd03778c78a",
    }
)
_FOUR_NODES_LATER: Attributes = _FOUR_NODES | {  # in the recordings of 24.11 and 26.05
    "slurm.job.id": "7",
    "slurm.job.id.raw": "7",
    "slurm.array.job_id": "7",
    "nv.dl.job.uuid": "420918aa-fa5e-5ac7-ac80-9b13d1fa3620",
}
_GPUS: Attributes = (
    _CLUSTER
    | _NO_ARRAY
    | _FIRST_RUN
    | {
        "slurm.job.id": "8",
        "slurm.job.id.raw": "8",
        "slurm.array.job_id": "8",
        "slurm.job.name": "g.sbatch",
        "slurm.partition": "train",
        "slurm.nnodes": 2,
        "slurm.ntasks": 4,
        "nv.dl.job.uuid": "7aa1fcb6-c23f-53e5-8ebe-8f4b86bd4c1a",
    }
)
# The batch step sees the first component's nodes and tasks, a step over both components those of both.
_HETEROGENEOUS: Attributes = (
    _CLUSTER
    | _NO_ARRAY
    | _FIRST_RUN
    | {
        "slurm.job.id": "3",
        "slurm.job.id.raw": "3",
        "slurm.array.job_id": "3",
        "slurm.job.name": "het-job",
        "slurm.partition": "train",
        "slurm.het.size": 2,
        "nv.dl.job.uuid": "0461fb81-10eb-5506-9e9d-16b03959c379",
    }
)
_HETEROGENEOUS_STEP: Attributes = _HETEROGENEOUS | {"slurm.nnodes": 3, "slurm.ntasks": 3}
_HET_GROUPS: Attributes = _HETEROGENEOUS | {  # in the recordings of srun --het-group
    "slurm.job.id": "1",
    "slurm.job.id.raw": "1",
    "slurm.array.job_id": "1",
    "slurm.job.name": "het",
    "slurm.cluster.name": "lens",
    "nv.dl.job.uuid": "0f2e8906-5706-553e-a33b-ba3ca2af2799",
}
_SUBMITTED_BY_A_TASK: Attributes = (
    _CLUSTER
    | _NO_ARRAY
    | _FIRST_RUN
    | {
        "slurm.job.id": "3",
        "slurm.job.id.raw": "3",
        "slurm.array.job_id": "3",
        "slurm.job.name": "wrap",
        "slurm.cluster.name": "lens",
        "slurm.partition": "train",
        "slurm.nnodes": 1,
        "slurm.ntasks": 1,
        "nv.dl.job.uuid": "d08340f8-77c2-5b0a-9134-19817154ec66",
    }
)
_INTERACTIVE: Attributes = (
    _CLUSTER
    | _NO_ARRAY
    | _FIRST_RUN
    | {
        "slurm.job.id": "10",
        "slurm.job.id.raw": "10",
        "slurm.array.job_id": "10",
        "slurm.job.name": "interactive",
        "slurm.cluster.name": "lens",
        "slurm.partition": "train",
        "slurm.nnodes": 1,
        "slurm.ntasks": 1,
        "nv.dl.job.uuid": "68125f53-5c88-5067-8682-5e83dbe478cf",
    }
)
_TWO_TASKS: Attributes = (
    _CLUSTER
    | _NO_ARRAY
    | _FIRST_RUN
    | {
        "slurm.job.id": "7",
        "slurm.job.id.raw": "7",
        "slurm.array.job_id": "7",
        "slurm.job.name": "multi-task",
        "slurm.partition": "debug",
        "slurm.nnodes": 1,
        "slurm.ntasks": 2,
        "nv.dl.job.uuid": "420918aa-fa5e-5ac7-ac80-9b13d1fa3620",
    }
)
_REQUEUED: Attributes = (
    _CLUSTER
    | _NO_ARRAY
    | {
        "slurm.job.id": "10",
        "slurm.job.id.raw": "10",
        "slurm.array.job_id": "10",
        "slurm.job.name": "requeue-job",
        "slurm.partition": "debug",
        "slurm.nnodes": 1,
        "nv.dl.job.uuid": "20f0558f-1d45-564b-8b68-d11a15ecccae",
    }
)
_REQUEUED_LATER: Attributes = _REQUEUED | {  # in the recordings of 24.11 and 26.05
    "slurm.job.id": "8",
    "slurm.job.id.raw": "8",
    "slurm.array.job_id": "8",
    "slurm.partition": "train",
    "nv.dl.job.uuid": "7aa1fcb6-c23f-53e5-8ebe-8f4b86bd4c1a",
}

# A batch step, and a task, on each of the nodes.
_BATCH_ON_VM: Attributes = {"slurm.topology.addr": "vm", "slurm.head_node.name": "vm"}
_BATCH_ON_A1: Attributes = {"slurm.topology.addr": "gpu-a1", "slurm.head_node.name": "gpu-a1"}
_ON_VM: Attributes = {"slurm.topology.addr": "vm"}
_ON_A1: Attributes = {"slurm.topology.addr": "gpu-a1"}
_ON_A2: Attributes = {"slurm.topology.addr": "gpu-a2"}
_ON_B07: Attributes = {"slurm.topology.addr": "gpu-b07"}
_ON_B08: Attributes = {"slurm.topology.addr": "gpu-b08"}

_DEBUG: Attributes = {"slurm.partition": "debug"}
_TRAIN: Attributes = {"slurm.partition": "train"}

EXPECTED: dict[str, Attributes] = {
    # SLURM 22.05
    "sbatch-plain.txt": _PLAIN | _DEBUG | _BATCH_ON_VM,
    "srun-plain-1task.txt": _SRUN_ALONE | _DEBUG | _ON_VM | {"slurm.job.name": "bash"},
    "sbatch-array-task0.txt": _ARRAY | _ELEMENTS[0] | _DEBUG | _BATCH_ON_VM,
    "sbatch-array-task1.txt": _ARRAY | _ELEMENTS[1] | _DEBUG | _BATCH_ON_VM,
    "sbatch-array-task2.txt": _ARRAY | _ELEMENTS[2] | _DEBUG | _BATCH_ON_VM,
    "sbatch-array-task3.txt": _ARRAY | _ELEMENTS[3] | _DEBUG | _BATCH_ON_VM,
    "sbatch-multitask-batchstep.txt": _TWO_TASKS | _BATCH_ON_VM,
    "sbatch-multitask-srun0-rank0.txt": _TWO_TASKS | _ON_VM,
    "sbatch-multitask-srun0-rank1.txt": _TWO_TASKS | _ON_VM,
    "sbatch-multitask-srun1-rank0.txt": _TWO_TASKS | _ON_VM,
    "sbatch-multitask-srun1-rank1.txt": _TWO_TASKS | _ON_VM,
    "sbatch-requeue-attempt-unset.txt": _REQUEUED | _BATCH_ON_VM | {"slurm.restart_count": 0},
    "sbatch-requeue-attempt-1.txt": _REQUEUED | _BATCH_ON_VM | {"slurm.restart_count": 1},
    "sbatch-requeue-attempt-2.txt": _REQUEUED | _BATCH_ON_VM | {"slurm.restart_count": 2},
    "sbatch-requeue-attempt-unset-srun.txt": _REQUEUED | _ON_VM | {"slurm.restart_count": 0, "slurm.ntasks": 1},
    "sbatch-requeue-attempt-1-srun.txt": _REQUEUED | _ON_VM | {"slurm.restart_count": 1, "slurm.ntasks": 1},
    "sbatch-requeue-attempt-2-srun.txt": _REQUEUED | _ON_VM | {"slurm.restart_count": 2, "slurm.ntasks": 1},
    "mn4x1-srun-node0.txt": _FOUR_NODES | _ON_A1,
    "mn4x1-srun-node1.txt": _FOUR_NODES | _ON_A2,
    "mn4x1-srun-node2.txt": _FOUR_NODES | _ON_B07,
    "mn4x1-srun-node3.txt": _FOUR_NODES | _ON_B08,
    "mn4x2-sbatch.txt": _FOUR_NODES | _BATCH_ON_A1,
    "mn4x2-srun-rank0.txt": _FOUR_NODES | _ON_A1,
    "mn4x2-srun-rank1.txt": _FOUR_NODES | _ON_A1,
    "mn4x2-srun-rank2.txt": _FOUR_NODES | _ON_A2,
    "mn4x2-srun-rank3.txt": _FOUR_NODES | _ON_A2,
    "mn4x2-srun-rank4.txt": _FOUR_NODES | _ON_B07,
    "mn4x2-srun-rank5.txt": _FOUR_NODES | _ON_B07,
    "mn4x2-srun-rank6.txt": _FOUR_NODES | _ON_B08,
    "mn4x2-srun-rank7.txt": _FOUR_NODES | _ON_B08,
    "gpu2x2-sbatch.txt": _GPUS | _BATCH_ON_A1,
    "gpu2x2-srun-rank0.txt": _GPUS | _ON_A1,
    "gpu2x2-srun-rank1.txt": _GPUS | _ON_A1,
    "gpu2x2-srun-rank2.txt": _GPUS | _ON_A2,
    "gpu2x2-srun-rank3.txt": _GPUS | _ON_A2,
    "het-sbatch.txt": _HETEROGENEOUS | _BATCH_ON_A1 | {"slurm.nnodes": 1, "slurm.ntasks": 1},
    "het-srun-rank0.txt": _HETEROGENEOUS_STEP | _ON_A1 | {"slurm.het.group": 0},
    "het-srun-rank1.txt": _HETEROGENEOUS_STEP | _ON_A2 | {"slurm.het.group": 1},
    "het-srun-rank2.txt": _HETEROGENEOUS_STEP | _ON_B07 | {"slurm.het.group": 1},
    # A step of one component, by srun --het-group, sees that component's nodes and tasks.
    "het-srun-group0-rank0.txt": _HET_GROUPS | _ON_A1 | {"slurm.nnodes": 1, "slurm.ntasks": 1, "slurm.het.group": 0},
    "het-srun-group1-rank0.txt": _HET_GROUPS | _ON_A2 | {"slurm.nnodes": 2, "slurm.ntasks": 2, "slurm.het.group": 1},
    "het-srun-group1-rank1.txt": _HET_GROUPS | _ON_B07 | {"slurm.nnodes": 2, "slurm.ntasks": 2, "slurm.het.group": 1},
    # The shell of salloc, in the step 4294967290, which is -6.
    "salloc-interactive-step.txt": _INTERACTIVE | _BATCH_ON_A1,
    # A batch script submitted by a task of a heterogeneous job: that job's SLURM_STEP_ID and SLURM_HET_* are there too.
    "sbatch-inside-het-task.txt": _SUBMITTED_BY_A_TASK | _ON_B08,
    # SLURM 24.11
    "v24.11-sbatch-plain.txt": _PLAIN | _TRAIN | _BATCH_ON_A1,
    "v24.11-srun-plain.txt": _SRUN_ALONE | _TRAIN | _ON_A1 | {"slurm.job.name": "dump.sh"},
    "v24.11-sbatch-array-task0.txt": _ARRAY | _ELEMENTS[0] | _TRAIN | _BATCH_ON_A1,
    "v24.11-sbatch-array-task1.txt": _ARRAY | _ELEMENTS[1] | _TRAIN | _BATCH_ON_A1,
    "v24.11-sbatch-array-task2.txt": _ARRAY | _ELEMENTS[2] | _TRAIN | _BATCH_ON_A1,
    "v24.11-sbatch-array-task3.txt": _ARRAY | _ELEMENTS[3] | _TRAIN | _BATCH_ON_A1,
    "v24.11-sbatch-requeue-attempt-unset.txt": _REQUEUED_LATER | _BATCH_ON_A1 | {"slurm.restart_count": 0},
    "v24.11-sbatch-requeue-attempt-1.txt": _REQUEUED_LATER | _BATCH_ON_A1 | {"slurm.restart_count": 1},
    "v24.11-mn4x2-sbatch.txt": _FOUR_NODES_LATER | _BATCH_ON_A1,
    "v24.11-mn4x2-srun-rank0.txt": _FOUR_NODES_LATER | _ON_A1,
    "v24.11-mn4x2-srun-rank1.txt": _FOUR_NODES_LATER | _ON_A1,
    "v24.11-mn4x2-srun-rank2.txt": _FOUR_NODES_LATER | _ON_A2,
    "v24.11-mn4x2-srun-rank3.txt": _FOUR_NODES_LATER | _ON_A2,
    "v24.11-mn4x2-srun-rank4.txt": _FOUR_NODES_LATER | _ON_B07,
    "v24.11-mn4x2-srun-rank5.txt": _FOUR_NODES_LATER | _ON_B07,
    "v24.11-mn4x2-srun-rank6.txt": _FOUR_NODES_LATER | _ON_B08,
    "v24.11-mn4x2-srun-rank7.txt": _FOUR_NODES_LATER | _ON_B08,
    # SLURM 26.05: the batch step is step -5
    "v26.05-sbatch-plain.txt": _PLAIN | _TRAIN | _BATCH_ON_A1,
    "v26.05-srun-plain.txt": _SRUN_ALONE | _TRAIN | _ON_A1 | {"slurm.job.name": "dump.sh"},
    "v26.05-sbatch-array-task0.txt": _ARRAY | _ELEMENTS[0] | _TRAIN | _BATCH_ON_A1,
    "v26.05-sbatch-array-task1.txt": _ARRAY | _ELEMENTS[1] | _TRAIN | _BATCH_ON_A1,
    "v26.05-sbatch-array-task2.txt": _ARRAY | _ELEMENTS[2] | _TRAIN | _BATCH_ON_A1,
    "v26.05-sbatch-array-task3.txt": _ARRAY | _ELEMENTS[3] | _TRAIN | _BATCH_ON_A1,
    "v26.05-sbatch-requeue-attempt-unset.txt": _REQUEUED_LATER | _BATCH_ON_A1 | {"slurm.restart_count": 0},
    "v26.05-sbatch-requeue-attempt-1.txt": _REQUEUED_LATER | _BATCH_ON_A1 | {"slurm.restart_count": 1},
    "v26.05-mn4x2-sbatch.txt": _FOUR_NODES_LATER | _BATCH_ON_A1,
    "v26.05-mn4x2-srun-rank0.txt": _FOUR_NODES_LATER | _ON_A1,
    "v26.05-mn4x2-srun-rank1.txt": _FOUR_NODES_LATER | _ON_A1,
    "v26.05-mn4x2-srun-rank2.txt": _FOUR_NODES_LATER | _ON_A2,
    "v26.05-mn4x2-srun-rank3.txt": _FOUR_NODES_LATER | _ON_A2,
    "v26.05-mn4x2-srun-rank4.txt": _FOUR_NODES_LATER | _ON_B07,
    "v26.05-mn4x2-srun-rank5.txt": _FOUR_NODES_LATER | _ON_B07,
    "v26.05-mn4x2-srun-rank6.txt": _FOUR_NODES_LATER | _ON_B08,
    "v26.05-mn4x2-srun-rank7.txt": _FOUR_NODES_LATER | _ON_B08,
}
