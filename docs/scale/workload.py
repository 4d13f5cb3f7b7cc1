"""A trainer as the sizes are measured on it: its span groups, its presets, what a step records, where it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from nemo_lens.api import SpanRegistry, get_meter, managed_span, span_attributes
from nemo_lens.api.instruments import record_training_metrics


@dataclass(frozen=True)
class Job:
    """What the volume of a job depends on, beside its number of ranks."""

    step_time_s: float = 5.0
    microbatches: int = 8
    layers: int = 10
    checkpoint_interval: int = 500
    log_interval: int = 10
    metric_interval_s: float = 10.0
    span_delay_s: float = 5.0
    ranks_per_node: int = 8


class Group(NamedTuple):
    """A span group: what its spans are around, and how many a rank records in a step."""

    around: str
    formula: str
    spans_per_step: Callable[[Job], float]


GROUPS: dict[str, Group] = {
    "step": Group("a training step", "1", lambda job: 1),
    "checkpoint": Group(
        "a checkpoint and its three parts", "4 / checkpoint interval", lambda job: 4 / job.checkpoint_interval
    ),
    "phase": Group("loading, forward and backward, gradient reduction, optimizer", "4", lambda job: 4),
    "io": Group("reading the samples of a microbatch", "microbatches", lambda job: job.microbatches),
    "microbatch": Group(
        "the forward and the backward pass of a microbatch", "2 x microbatches", lambda job: 2 * job.microbatches
    ),
    "layer": Group(
        "a layer in such a pass", "2 x microbatches x layers", lambda job: 2 * job.microbatches * job.layers
    ),
    "collective": Group(
        "two tensor-parallel all-reduces a layer and pass, four pipeline transfers a microbatch, two of the gradients",
        "4 x microbatches x layers + 4 x microbatches + 2",
        lambda job: 4 * job.microbatches * job.layers + 4 * job.microbatches + 2,
    ),
}
PRESETS: dict[str, tuple[str, ...]] = {
    "minimal": ("step", "checkpoint"),
    "default": ("step", "checkpoint", "phase", "io"),
    "all": tuple(GROUPS),
}

SpanRegistry.register("trainer", GROUPS, {name: PRESETS[name] for name in ("minimal", "default")})

# A rank among 16 384 on 2048 nodes: 340e9 parameters in 80 layers of width 18432, 2048 samples of 8192 tokens a step.
# 6 x 340e9 x 2048 x 8192 operations in 5 s are 418 TFLOP/s of each rank. Names are made up, in kind and length as real.
ENVIRONMENT = {
    "NEMO_LENS_ENABLED": "1",
    "NEMO_LENS_LOGS_ENABLED": "1",
    "NEMO_LENS_SERVICE_NAME": "pretrain",
    "NEMO_LENS_USER_ID": "jdoe",
    "DEPLOYMENT_ENV": "production",
    "WANDB_ENTITY": "foundation-models",
    "WANDB_PROJECT": "pretrain-340b",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
    "SLURM_JOB_ID": "18204417",
    "SLURM_JOB_NAME": "pretrain-340b",
    "SLURM_JOB_USER": "jdoe",
    "SLURM_JOB_ACCOUNT": "foundation",
    "SLURM_JOB_QOS": "normal",
    "SLURM_JOB_PARTITION": "batch",
    "SLURM_CLUSTER_NAME": "cluster-a",
    "SLURM_JOB_NUM_NODES": "2048",
    "SLURM_NTASKS": "16384",
    "SLURM_JOB_NODELIST": "gpu-[0001-2048]",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1091",
    "SLURM_LOCALID": "3",
    "SLURMD_NODENAME": "gpu-0137",
    "SLURM_TOPOLOGY_ADDR": "spine2.leaf17.gpu-0137",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node",
    "OTEL_RESOURCE_ATTRIBUTES": "host.name=gpu-0137,slurm.head_node.name=gpu-0001,"
    "nv.dl.launch.container.image=registry.example.com%2Fml%2Fpretrain%3A25.11,"
    "nv.dl.run.uuid=0b6c1c52-3f1f-5d3a-9f0e-6a3a4b1f7d10",
}
# What only the program knows, as it gives it to setup_telemetry, with what detect_gpu() finds.
RESOURCE: dict[str, Any] = {
    "nv.dl.rank": 1091,
    "nv.dl.world_size": 16384,
    "nv.dl.local_rank": 3,
    "nv.dl.role": "trainer",
    "nv.dl.provider.name": "mcore",
    "nv.dl.topology.size.tp": 8,
    "nv.dl.topology.size.pp": 8,
    "nv.dl.topology.size.dp": 256,
    "nv.dl.training.config.global_batch_size": 2048,
    "nv.dl.training.config.micro_batch_size": 1,
    "nv.dl.training.config.sequence_length": 8192,
    "nv.dl.training.config.optimizer": "adam",
    "nv.dl.training.target.train_iters": 500_000,
    "nv.dl.software.torch": "2.9.0a0+50eac811a6",
    "nv.dl.software.cuda": "13.0",
    "nv.dl.software.nccl": "2.28.8",
    "nv.dl.software.transformer_engine": "2.9.0",
    "nv.gpu.index": 3,
    "nv.gpu.model": "NVIDIA H100 80GB HBM3",
    "nv.gpu.uuid": "GPU-5c2b1f0e-8d54-7f4e-a1a5-93d1e0b6c7f2",
    "nv.gpu.serial": "1654922006536",
    "nv.gpu.pci_bus_id": "00000000:4C:00.0",
    "nv.gpu.compute_capability": "9.0",
    "nv.gpu.memory_total": 85_520_809_984,
    "nv.gpu.driver_version": "580.65.06",
}

_log = logging.getLogger("trainer")


def spans_per_step(job: Job, preset: str) -> float:
    """Return how many spans a rank records in a step, the checkpoints spread over the steps between them."""
    return sum(GROUPS[group].spans_per_step(job) for group in PRESETS[preset])


def train(job: Job, steps: int) -> None:
    """Record what a rank records in ``steps`` steps; the work itself is left out."""
    meter = get_meter("trainer")
    for iteration in range(steps):
        # On every span inside: which iteration it belongs to.
        with span_attributes({"dl.iteration": 120_000 + iteration}):
            _step(job)
            if iteration % job.checkpoint_interval == job.checkpoint_interval - 1:
                _checkpoint(iteration)
            if iteration % job.log_interval == 0:
                _log.warning(
                    "iteration %d/%d | step time %.3f s | loss %.5f", 120_000 + iteration, 500_000, job.step_time_s, 1.9
                )
        record_training_metrics(
            meter,
            step_duration_s=job.step_time_s + iteration / 1000,
            loss=1.93217,
            learning_rate=2.7e-5,
            grad_norm=0.4713,
            tokens_per_sec=204.8,
            samples_per_sec=0.025,
            tflops=417.8,
            memory_allocated_bytes=71_203_487_744,
            skipped_iterations=0,
        )


def _step(job: Job) -> None:
    with managed_span("step", "train.step", attributes={"dl.batch_size": 2048, "dl.sequence_length": 8192}):
        with managed_span("phase", "data.load"):
            for microbatch in range(job.microbatches):
                with managed_span(
                    "io", "data.read", attributes={"dl.microbatch_id": microbatch, "data.shard": "web/part-00217.bin"}
                ):
                    pass
        with managed_span("phase", "forward_backward"):
            for microbatch in range(job.microbatches):
                with span_attributes({"dl.microbatch_id": microbatch}):
                    for direction in ("forward", "backward"):
                        _pass(job, direction)
        with managed_span("phase", "grads.reduce"):
            _collective("reduce_scatter", "dp", 21_250_000_000)
        with managed_span("phase", "optimizer.step"):
            _collective("all_gather", "dp", 10_625_000_000)


def _pass(job: Job, direction: str) -> None:
    with managed_span("microbatch", direction):
        _collective("recv", "pp", 301_989_888)
        for layer in range(job.layers):
            with managed_span("layer", f"layer.{direction}", layer=layer):
                for _ in ("attention", "mlp"):
                    _collective("all_reduce", "tp", 301_989_888)
        _collective("send", "pp", 301_989_888)


def _collective(name: str, group: str, size: int) -> None:
    with managed_span("collective", name, attributes={"comm.group": group, "comm.bytes": size}):
        pass


def _checkpoint(iteration: int) -> None:
    path = f"/lustre/checkpoints/pretrain-340b/iter_{120_000 + iteration:07d}"
    with managed_span("checkpoint", "checkpoint.save", attributes={"checkpoint.path": path}):
        for part in ("checkpoint.gather", "checkpoint.write", "checkpoint.barrier"):
            with managed_span("checkpoint", part):
                pass
