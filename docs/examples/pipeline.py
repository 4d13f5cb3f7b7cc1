"""Pipeline-parallel training in two stages, whose spans link to each other as activations and gradients travel.

    pip install nemo-lens-api nemo-lens-sdk 'nemo-lens-contrib[nccl]' scikit-learn
    NEMO_LENS_ENABLED=1 NEMO_LENS_EXPORTER=file torchrun --standalone --nproc-per-node 2 pipeline.py
    nemo-lens tree nemo-lens/*/

Each rank is a stage and has a trace of its own. What a stage computes was caused by what the other sent, which is a
link: a parent would say that the other stage waits for it. The context goes with each tensor, as one more message.
"""

from __future__ import annotations

import os

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn

from nemo_lens.api import (
    SpanRegistry,
    create_linked_span,
    get_pp_trace_carrier,
    managed_span,
    set_pp_trace_carrier,
    setup_telemetry,
    span_cm,
)
from nemo_lens.contrib.nccl import recv_context, send_context

SpanRegistry.register("pipeline", ["step", "stage"], presets={"default": ["step", "stage"]})

STEPS, MICROBATCHES, ROWS, HIDDEN = 6, 4, 32, 32


def send(tensor: torch.Tensor, peer: int) -> None:
    """Send a tensor, and the current trace context after it."""
    distributed.send(tensor, peer)
    send_context(peer)


def receive(peer: int) -> torch.Tensor:
    """Receive a tensor, and keep the context that came with it for whoever works on it."""
    tensor = torch.empty(ROWS, HIDDEN)
    with managed_span("stage", "receive"):  # the bubble
        distributed.recv(tensor, peer)
        set_pp_trace_carrier(recv_context(peer))
    return tensor


def linked(name: str, microbatch: int) -> object:
    """Open a span that links to the one whose tensor was received last."""
    return create_linked_span(
        None, name, remote_carrier=get_pp_trace_carrier(), attributes={"dl.microbatch_id": microbatch}
    )


def first_stage(model: nn.Module, batch: torch.Tensor) -> None:
    """Run all microbatches forward, then take the gradients of their activations back."""
    outputs = []
    for index, images in enumerate(batch.chunk(MICROBATCHES)):
        with managed_span("stage", "forward", attributes={"dl.microbatch_id": index}):
            outputs.append(model(images))
            send(outputs[-1].detach(), 1)
    for index, output in enumerate(outputs):
        gradient = receive(1)
        with linked("backward", index):
            output.backward(gradient)


def last_stage(model: nn.Module, labels: torch.Tensor) -> float:
    """Finish the microbatches that come in, then send back the gradients; return the loss."""
    held = []
    for index, expected in enumerate(labels.chunk(MICROBATCHES)):
        activation = receive(0).requires_grad_()
        with linked("forward", index):
            held.append((activation, nn.functional.cross_entropy(model(activation), expected) / MICROBATCHES))
    for index, (activation, loss) in enumerate(held):
        with managed_span("stage", "backward", attributes={"dl.microbatch_id": index}):
            loss.backward()
            send(activation.grad, 0)
    return sum(loss.item() for _, loss in held)


def main() -> None:
    """Train one stage, that of this rank."""
    rank = int(os.environ["RANK"])
    torch.manual_seed(7)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    data = load_digits()
    images = torch.tensor(data.images / 16, dtype=torch.float32).flatten(1)
    labels = torch.tensor(data.target)
    stages = [nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU()), nn.Linear(HIDDEN, 10)]
    model = stages[rank]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    stage = {"dl.pipeline_parallel.rank": rank, "dl.pipeline_parallel.size": len(stages)}
    with setup_telemetry(), span_cm("train", attributes=stage):
        for step in range(STEPS):
            rows = slice(step * MICROBATCHES * ROWS, (step + 1) * MICROBATCHES * ROWS)
            with managed_span("step", "step", attributes={"dl.iteration": step}):
                optimizer.zero_grad()
                if rank == 0:
                    first_stage(model, images[rows])
                else:
                    loss = last_stage(model, labels[rows])
                    print(f"step {step} loss {loss:.4f} {loss.hex()}", flush=True)
                optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
