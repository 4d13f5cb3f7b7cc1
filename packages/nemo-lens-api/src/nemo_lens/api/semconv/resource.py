"""Resource attributes: what is fixed for the life of a process."""

from __future__ import annotations

from nemo_lens.api.semconv.slurm import SLURM_FIELDS

SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
SERVICE_INSTANCE_ID = "service.instance.id"
DEPLOYMENT_ENVIRONMENT = "deployment.environment"
DEPLOYMENT_ENVIRONMENT_NAME = "deployment.environment.name"
HOST_NAME = "host.name"
HOST_GPU_COUNT = "host.gpu.count"
PROCESS_PID = "process.pid"

NEMO_RUN_ID = "nemo.run.id"
NEMO_USER_ID = "nemo.user.id"
WANDB_ENTITY = "wandb.entity"
WANDB_PROJECT = "wandb.project"

NV_DL_RANK = "nv.dl.rank"
NV_DL_WORLD_SIZE = "nv.dl.world_size"
NV_DL_LOCAL_RANK = "nv.dl.local_rank"
NV_DL_ROLE = "nv.dl.role"
NV_DL_PROVIDER_NAME = "nv.dl.provider.name"
NV_DL_TOPOLOGY_SIZE_TP = "nv.dl.topology.size.tp"
NV_DL_TOPOLOGY_SIZE_PP = "nv.dl.topology.size.pp"
NV_DL_TOPOLOGY_SIZE_DP = "nv.dl.topology.size.dp"
NV_DL_TRAINING_CONFIG_GLOBAL_BATCH_SIZE = "nv.dl.training.config.global_batch_size"
NV_DL_TRAINING_CONFIG_MICRO_BATCH_SIZE = "nv.dl.training.config.micro_batch_size"
NV_DL_TRAINING_CONFIG_SEQUENCE_LENGTH = "nv.dl.training.config.sequence_length"
NV_DL_TRAINING_CONFIG_OPTIMIZER = "nv.dl.training.config.optimizer"
NV_DL_TRAINING_CONFIG_RECOMPUTE_GRANULARITY = "nv.dl.training.config.recompute_granularity"
NV_DL_TRAINING_TARGET_TRAIN_ITERS = "nv.dl.training.target.train_iters"
NV_DL_TRAINING_TARGET_TRAIN_SAMPLES = "nv.dl.training.target.train_samples"
NV_DL_TRAINING_TARGET_TRAIN_TOKENS = "nv.dl.training.target.train_tokens"
NV_DL_SOFTWARE_TORCH = "nv.dl.software.torch"
NV_DL_SOFTWARE_CUDA = "nv.dl.software.cuda"
NV_DL_SOFTWARE_NCCL = "nv.dl.software.nccl"
NV_DL_SOFTWARE_TRANSFORMER_ENGINE = "nv.dl.software.transformer_engine"
NV_DL_LAUNCH_CONTAINER_IMAGE = "nv.dl.launch.container.image"
NV_DL_JOB_UUID = "nv.dl.job.uuid"
NV_DL_RUN_UUID = "nv.dl.run.uuid"

NV_GPU_INDEX = "nv.gpu.index"
NV_GPU_MODEL = "nv.gpu.model"
NV_GPU_UUID = "nv.gpu.uuid"
NV_GPU_SERIAL = "nv.gpu.serial"
NV_GPU_PCI_BUS_ID = "nv.gpu.pci_bus_id"
NV_GPU_COMPUTE_CAPABILITY = "nv.gpu.compute_capability"
NV_GPU_DRIVER_VERSION = "nv.gpu.driver_version"
NV_GPU_MEMORY_TOTAL = "nv.gpu.memory_total"

K8S_NAMESPACE_NAME = "k8s.namespace.name"
K8S_POD_NAME = "k8s.pod.name"
K8S_POD_UID = "k8s.pod.uid"
K8S_NODE_NAME = "k8s.node.name"
K8S_CONTAINER_NAME = "k8s.container.name"
K8S_JOB_NAME = "k8s.job.name"

# Every resource attribute and the type it is sent as; nv.gpu.memory_total is in bytes.
RESOURCE_FIELDS: dict[str, type[str] | type[int]] = {
    SERVICE_NAME: str,
    SERVICE_VERSION: str,
    SERVICE_INSTANCE_ID: str,
    DEPLOYMENT_ENVIRONMENT: str,
    DEPLOYMENT_ENVIRONMENT_NAME: str,
    HOST_NAME: str,
    HOST_GPU_COUNT: int,
    PROCESS_PID: int,
    NEMO_RUN_ID: str,
    NEMO_USER_ID: str,
    WANDB_ENTITY: str,
    WANDB_PROJECT: str,
    NV_DL_RANK: int,
    NV_DL_WORLD_SIZE: int,
    NV_DL_LOCAL_RANK: int,
    NV_DL_ROLE: str,
    NV_DL_PROVIDER_NAME: str,
    NV_DL_TOPOLOGY_SIZE_TP: int,
    NV_DL_TOPOLOGY_SIZE_PP: int,
    NV_DL_TOPOLOGY_SIZE_DP: int,
    NV_DL_TRAINING_CONFIG_GLOBAL_BATCH_SIZE: int,
    NV_DL_TRAINING_CONFIG_MICRO_BATCH_SIZE: int,
    NV_DL_TRAINING_CONFIG_SEQUENCE_LENGTH: int,
    NV_DL_TRAINING_CONFIG_OPTIMIZER: str,
    NV_DL_TRAINING_CONFIG_RECOMPUTE_GRANULARITY: str,
    NV_DL_TRAINING_TARGET_TRAIN_ITERS: int,
    NV_DL_TRAINING_TARGET_TRAIN_SAMPLES: int,
    NV_DL_TRAINING_TARGET_TRAIN_TOKENS: int,
    NV_DL_SOFTWARE_TORCH: str,
    NV_DL_SOFTWARE_CUDA: str,
    NV_DL_SOFTWARE_NCCL: str,
    NV_DL_SOFTWARE_TRANSFORMER_ENGINE: str,
    NV_DL_LAUNCH_CONTAINER_IMAGE: str,
    NV_DL_JOB_UUID: str,
    NV_DL_RUN_UUID: str,
    NV_GPU_INDEX: int,
    NV_GPU_MODEL: str,
    NV_GPU_UUID: str,
    NV_GPU_SERIAL: str,
    NV_GPU_PCI_BUS_ID: str,
    NV_GPU_COMPUTE_CAPABILITY: str,
    NV_GPU_DRIVER_VERSION: str,
    NV_GPU_MEMORY_TOTAL: int,
    K8S_NAMESPACE_NAME: str,
    K8S_POD_NAME: str,
    K8S_POD_UID: str,
    K8S_NODE_NAME: str,
    K8S_CONTAINER_NAME: str,
    K8S_JOB_NAME: str,
    **SLURM_FIELDS,
}
