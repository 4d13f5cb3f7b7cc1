"""Data-parallel training with one trace per step, over all ranks, and with spans of the data-loading workers.

    pip install nemo-lens-api nemo-lens-sdk torch scikit-learn
    NEMO_LENS_ENABLED=1 NEMO_LENS_EXPORTER=file torchrun --standalone --nproc-per-node 4 train_ddp.py
    nemo-lens tree nemo-lens/*/

With ``PROFILE=profiles`` PyTorch's profiler runs, too, and its operators can be looked at below the spans:

    nemo-lens timeline nemo-lens/*/ --with-profiler profiles

The span of a step on rank 0 is the root of a trace. ``broadcast_trace_context`` hands it to the other ranks, whose
spans become its children: the slowest rank of a step is seen at a glance. A step links to the epoch of its own rank.

Workers that are forked need nothing. Workers that are spawned set telemetry up for themselves.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, tensorboard_trace_handler
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

from nemo_lens.api import (
    SpanRegistry,
    broadcast_trace_context,
    inject_context,
    managed_span,
    setup_telemetry,
    span_cm,
)

SpanRegistry.register("train_ddp", ["step", "data"], presets={"default": ["step", "data"]})

EPOCHS, BATCH = 2, 64


class Digits(Dataset):
    """Handwritten digits, 8 by 8 pixels: 1536 of them for training, 256 for validation."""

    def __init__(self, rows: slice) -> None:
        data = load_digits()
        self.images = torch.tensor(data.images[rows] / 16, dtype=torch.float32).flatten(1)
        self.labels = torch.tensor(data.target[rows])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, rows: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return a batch; called in a worker process."""
        with managed_span("data", "load_batch", worker=get_worker_info().id, rows=len(rows)):
            return [(self.images[row], self.labels[row]) for row in rows]


def start_worker(worker: int) -> None:
    """Set telemetry up in a worker that was spawned: another process of this rank, under a name of its own."""
    rank = os.environ["RANK"]
    setup_telemetry(resource_attributes={"service.instance.id": f"rank{rank}-validation-worker{worker}"})


@contextmanager
def traced_step(rank: int, iteration: int) -> Iterator[None]:
    """Open the span of a step: on rank 0 the root of a new trace, on the others a child of rank 0's.

    Every rank calls ``broadcast_trace_context`` once a step, whether its telemetry is on or not.
    """
    parent = {} if rank == 0 else broadcast_trace_context(rank)
    with managed_span("step", "step", context=parent, links=[inject_context()], attributes={"dl.iteration": iteration}):
        if rank == 0:
            broadcast_trace_context(rank)
        yield


def train(rank: int, model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> None:
    """Train for some epochs; rank 0 prints the mean loss of all ranks, also as hexadecimal, which is exact."""
    iteration = 0
    for epoch in range(EPOCHS):
        loader.sampler.set_epoch(epoch)
        # The workers are forked in here: their spans are children of this one.
        with span_cm("epoch", index=epoch):
            for images, labels in loader:
                with traced_step(rank, iteration):
                    with managed_span("step", "forward"):
                        loss = nn.functional.cross_entropy(model(images), labels)
                    with managed_span("step", "backward"):  # averages the gradients over the ranks
                        optimizer.zero_grad()
                        loss.backward()
                    with managed_span("step", "optimizer"):
                        optimizer.step()
                    mean = loss.detach()
                    distributed.all_reduce(mean)
                if rank == 0:
                    mean = mean.item() / distributed.get_world_size()
                    print(f"step {iteration} loss {mean:.4f} {mean.hex()}", flush=True)
                iteration += 1


def validate(rank: int, model: nn.Module, loader: DataLoader) -> None:
    """Count right answers; the workers are spawned."""
    with span_cm("validate") as span, torch.no_grad():
        inject_context(os.environ)  # where telemetry in a new process looks for the parent of its spans
        right = sum((model(images).argmax(1) == labels).sum() for images, labels in loader)
        distributed.all_reduce(right)
        span.set_attribute("right", right.item())
    if rank == 0:
        print(f"right {right.item()} of {len(loader.dataset)}", flush=True)


def profiler() -> AbstractContextManager[object]:
    """Return PyTorch's profiler where the environment says so; it writes a file for each rank into that folder."""
    folder = os.environ.get("PROFILE")
    if not folder:
        return nullcontext()
    return profile(activities=[ProfilerActivity.CPU], on_trace_ready=tensorboard_trace_handler(folder))


def main() -> None:
    """Train on this rank, as torchrun says which one it is."""
    rank = int(os.environ["RANK"])
    # The same on all ranks. Ids of traces and spans do not come from these generators, and are unique all the same.
    random.seed(7)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    training, validation = Digits(slice(0, 1536)), Digits(slice(1536, 1792))
    loader = DataLoader(
        training, BATCH, sampler=DistributedSampler(training), num_workers=2, multiprocessing_context="fork"
    )
    check = DataLoader(
        validation,
        BATCH,
        sampler=DistributedSampler(validation, shuffle=False),
        num_workers=1,
        multiprocessing_context="spawn",
        worker_init_fn=start_worker,
    )
    with setup_telemetry(), span_cm("train"):
        with profiler():
            train(rank, model, loader, optimizer)
        validate(rank, model.module, check)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
