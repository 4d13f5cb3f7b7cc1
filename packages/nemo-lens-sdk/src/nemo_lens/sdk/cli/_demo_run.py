"""A small training run of several processes, instrumented the way a library would be: meant to be read and copied.

A launcher starts ranks, spawned and forked ones. Each rank trains a few steps, and in each the ranks wait for each
other; one microbatch fails; rank 0 writes a checkpoint, in a forked process of its own. No line depends on whether
telemetry is on. The numbers are made up and the work is sleep.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier

from nemo_lens.api import (
    NemoLensConfig,
    SpanRegistry,
    extract_context,
    get_meter,
    inject_context,
    managed_span,
    mark,
    setup_telemetry,
    span_attributes,
    span_cm,
    trace_fn,
)
from nemo_lens.api.semconv import (
    DL_BATCH_SIZE,
    DL_ITERATION,
    DL_MICROBATCH_ID,
    NV_DL_RANK,
    NV_DL_ROLE,
    NV_DL_WORLD_SIZE,
    SERVICE_INSTANCE_ID,
)

# 1. A library declares its span groups, once, when it is imported. Users open them by NEMO_LENS_SPAN_GROUPS.
SpanRegistry.register(
    "demo",
    ["step", "microbatch", "compute", "data", "comm", "checkpoint"],
    presets={
        "minimal": ["step", "checkpoint"],
        "default": ["step", "microbatch", "data", "comm", "checkpoint"],
        "detailed": ["step", "microbatch", "compute", "data", "comm", "checkpoint"],
    },
)

MICROBATCHES = 2
# No message from any rank for so long: something is wrong, and the run is given up.
_STALLED_S = 60.0
# What a rank that is made slow needs more for a forward pass.
_SLOW_S = 0.02


class RunFailedError(Exception):
    """A rank ended badly or fell silent."""


@dataclass
class Report:
    """What a rank tells the launcher: that a step is done, or its result, with the trace context it is sent in."""

    rank: int
    step: int
    loss: float | None = None
    carrier: dict[str, str] = field(default_factory=dict)


def launch(
    config: NemoLensConfig,
    ranks: int,
    steps: int,
    progress: Callable[[Report], None],
    slow_rank: int | None = None,
) -> None:
    """Run the launcher: start all ranks, collect their results.

    Args:
        config: telemetry settings, for this process and all ranks.
        ranks: number of ranks.
        steps: training steps of each.
        progress: called for each report of a rank.
        slow_rank: a rank that is to be slow.

    Raises:
        RunFailedError: a rank ended with an error, or there was no sign of life.
    """
    # 2. An application sets telemetry up once per process, and says which process of the run it is.
    resource = {
        NV_DL_ROLE: "launcher",
        NV_DL_WORLD_SIZE: ranks,
        SERVICE_INSTANCE_ID: f"{config.run_id}-launcher",
    }
    with setup_telemetry(config, resource_attributes=resource), span_cm("demo.run", attributes={"demo.steps": steps}):
        # 3. What a child needs travels in the environment: the settings, and the trace context (TRACEPARENT).
        os.environ.update(config.to_env())
        inject_context(os.environ)
        _run_ranks(ranks, steps, progress, slow_rank)


def _run_ranks(ranks: int, steps: int, progress: Callable[[Report], None], slow_rank: int | None) -> None:
    spawn, fork = multiprocessing.get_context("spawn"), multiprocessing.get_context("fork")
    weights = [multiprocessing.Pipe(duplex=False) for _ in range(1, ranks)]
    barrier = spawn.Barrier(ranks)
    processes: dict[Connection, tuple[int, BaseProcess]] = {}
    try:
        for rank in range(ranks):
            inbox, outbox = multiprocessing.Pipe(duplex=False)
            peers = [send for _, send in weights] if rank == 0 else [weights[rank - 1][0]]
            # Even ranks are spawned, as a launcher or torchrun does; odd ones forked, as a data loader does.
            start = spawn.Process if rank % 2 == 0 else fork.Process
            arguments = (rank, ranks, steps, peers, barrier, outbox, rank == slow_rank)
            process: BaseProcess = start(target=run_rank, args=arguments, name=f"rank {rank}")
            process.start()
            outbox.close()  # so that the inbox ends with the rank
            processes[inbox] = rank, process
        _collect(dict(processes), progress)
    finally:
        for inbox, (_, process) in processes.items():
            process.terminate()
            process.join()
            inbox.close()


def _collect(processes: dict[Connection, tuple[int, BaseProcess]], progress: Callable[[Report], None]) -> None:
    while processes:
        ready = wait(list(processes), timeout=_STALLED_S)
        if not ready:
            silent = ", ".join(str(rank) for rank, _ in processes.values())
            raise RunFailedError(f"no sign of life from rank {silent} for {_STALLED_S:.0f} s")
        for inbox in ready:
            assert isinstance(inbox, Connection)
            try:
                report: Report = inbox.recv()
            except EOFError:
                rank, process = processes.pop(inbox)
                process.join()
                if process.exitcode:
                    raise RunFailedError(f"rank {rank} ended with exit code {process.exitcode}") from None
                continue
            if report.loss is not None:
                # 4. A message brings its trace context along: the span continues the sender's trace.
                context = extract_context(report.carrier)
                with managed_span("comm", "result.collect", context=context, loss=report.loss):
                    time.sleep(0.002)
            progress(report)


def run_rank(
    rank: int,
    ranks: int,
    steps: int,
    peers: list[Connection],
    barrier: Barrier,
    outbox: Connection,
    slow: bool,
) -> None:
    """Run one rank: the main function of a worker process, spawned or forked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the launcher ends its ranks
    launcher = os.getppid()
    # Settings and parent come from the environment; rank and role are this process's own.
    resource = {NV_DL_RANK: rank, NV_DL_WORLD_SIZE: ranks, NV_DL_ROLE: "trainer"}
    with setup_telemetry(resource_attributes=resource) as telemetry, managed_span("step", "train.run"):
        telemetry.install_sigterm_handler()  # what is recorded is sent when the rank is told to end
        share_weights(rank, peers)
        loss = 0.0
        for step in range(steps):
            if os.getppid() != launcher:
                barrier.abort()
                return  # it was killed, and nobody waits for the result
            try:
                loss = train_step(rank, step, barrier, fails=rank == 1 and step == min(1, steps - 1), slow=slow)
            except threading.BrokenBarrierError:
                return  # another rank has given up
            outbox.send(Report(rank, step + 1))
        if rank == 0:
            save_checkpoint(steps)
        with managed_span("comm", "result.send", span_kind="producer"):
            outbox.send(Report(rank, steps, loss, dict(inject_context())))


def share_weights(rank: int, peers: list[Connection]) -> None:
    """Send the weights from rank 0 to all others. The receivers' spans are linked to the sender's."""
    if rank == 0:
        with managed_span("comm", "weights.broadcast"):
            time.sleep(0.005)
            for peer in peers:
                peer.send(dict(inject_context()))
        return
    if not peers[0].poll(_STALLED_S):
        raise RunFailedError(f"rank {rank} got no weights")
    # 5. A link says "because of" where "part of" would be wrong. A carrier is enough to make one.
    with managed_span("comm", "weights.receive", links=[peers[0].recv()]):
        time.sleep(0.003)


def train_step(rank: int, step: int, barrier: Barrier, *, fails: bool, slow: bool) -> float:
    """Train one step and return its loss. A microbatch that fails is left out of it."""
    started = time.perf_counter()
    losses = []
    # 6. Attributes of a scope are on every span started inside; dotted names go into a mapping.
    with span_attributes({DL_ITERATION: step}), managed_span("step", "train.step"):
        for number in microbatches(step):
            try:
                losses.append(train_microbatch(rank, step, number, fails and number == MICROBATCHES - 1, slow))
            except FloatingPointError:
                # The span of the microbatch has recorded the error. The step goes on, and so does the program.
                mark("microbatch.skipped", group="microbatch", attributes={DL_MICROBATCH_ID: number})
        # As in data-parallel training: the early ranks wait here for the late ones.
        with managed_span("comm", "grads.all_reduce"):
            barrier.wait(_STALLED_S)
        with managed_span("compute", "optimizer.step"):
            time.sleep(0.002)
    histogram = get_meter("demo").create_histogram("demo.step.duration", unit="s")
    histogram.record(time.perf_counter() - started)
    return sum(losses) / max(len(losses), 1)


# 7. A generator keeps its span open from the first item to the last, and it is current only while the generator runs.
@trace_fn("data", "data.microbatches")
def microbatches(step: int) -> Iterator[int]:
    """Yield the numbers of the microbatches of a step."""
    for number in range(MICROBATCHES):
        time.sleep(0.003)
        yield number


# 8. Attributes made from the arguments cost nothing while the group is off.
@trace_fn(
    "microbatch",
    "train.microbatch",
    attributes=lambda rank, step, number, fails, slow: {DL_MICROBATCH_ID: number, DL_BATCH_SIZE: 4},
)
def train_microbatch(rank: int, step: int, number: int, fails: bool, slow: bool) -> float:
    """Run one microbatch forward and backward and return its loss."""
    with managed_span("compute", "forward"):
        time.sleep(0.008 + 0.002 * rank + (_SLOW_S if slow else 0))
        if fails:
            raise FloatingPointError(f"loss is nan at step {step}, microbatch {number}")
    with managed_span("compute", "backward"):
        time.sleep(0.012)
    return 2.0 / (1 + step) + 0.01 * rank


def save_checkpoint(step: int) -> None:
    """Write a checkpoint in a forked process and upload it meanwhile."""
    with managed_span("checkpoint", "checkpoint.save", step=step):
        # 9. A forked child needs nothing: its spans are children of the one it was forked in, under its own pid.
        writer = multiprocessing.get_context("fork").Process(target=write_checkpoint)
        writer.start()
        asyncio.run(upload_checkpoint(shards=2))
        writer.join()


@trace_fn("checkpoint", "checkpoint.write")
def write_checkpoint() -> None:
    """Write the file: the main function of the forked process."""
    time.sleep(0.02)


async def upload_checkpoint(shards: int) -> None:
    """Upload all shards at the same time."""
    await asyncio.gather(*(upload_shard(shard) for shard in range(shards)))


# 10. Coroutines are traced to their end, and each task keeps its own current span.
@trace_fn("checkpoint", "checkpoint.upload", attributes=lambda shard: {"shard": shard})
async def upload_shard(shard: int) -> None:
    """Upload one shard."""
    await asyncio.sleep(0.01 * (1 + shard))
