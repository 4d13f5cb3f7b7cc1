"""Ranks that hand each other their trace context, and tell the test what each of them got and what it cost.

usage: torchrun ... context.py SCENARIO [ARGUMENTS]
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import distributed
from torch.profiler import ProfilerActivity, profile

import nemo_lens.api
from nemo_lens.api import SpanRegistry, create_linked_span, inject_context, setup_telemetry, span_cm

logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
SpanRegistry.register("ranks", ["step"], {"default": ["step"]})
RANK = int(os.environ["RANK"])
# What the ranks of a job may be like: two with telemetry on, one with it off, one without the wheel.
OFF, VENDORED = 2, 3


def say(**facts: Any) -> None:
    """Tell the test something: one line, in one write, so that the ranks do not mix theirs."""
    os.write(1, f"{json.dumps(facts)}\n".encode())


class NoCuda(ModuleType):
    """A CUDA that is visible and fails whoever touches it."""

    def __getattr__(self, name: str) -> Any:
        if name == "is_available":
            return lambda: True
        say(rank=RANK, touched=name)
        raise AssertionError(f"torch.cuda.{name} was touched")


@contextlib.contextmanager
def cuda_in_sight() -> Iterator[None]:
    """Let torch see a CUDA that must not be touched."""
    real = torch.cuda
    torch.cuda = sys.modules["torch.cuda"] = NoCuda("torch.cuda")
    try:
        yield
    finally:
        torch.cuda = sys.modules["torch.cuda"] = real


def measured(case: str, call: Callable[[], Any]) -> Any:
    """Run a case on this rank; tell the test its result, and what torch itself says that gloo did."""
    with profile(activities=[ProfilerActivity.CPU]) as seen, cuda_in_sight():
        result = call()
    say(rank=RANK, case=case, result=result, sent=[event.name for event in seen.events() if "gloo:" in event.name])
    return result


def vendored() -> ModuleType:
    """Return the API's one vendorable file as a library that has no NeMo Lens imports it."""
    spec = importlib.util.spec_from_file_location("_vendored", nemo_lens.api.fallbacks.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def with_baggage(length: int) -> Iterator[None]:
    """Put that much baggage into the current context, where OpenTelemetry is there to do it."""
    from opentelemetry import baggage, context

    token = context.attach(baggage.set_baggage("job", "x" * length))
    try:
        yield
    finally:
        context.detach(token)


def broadcasts() -> None:
    """Four ranks, of which one has telemetry off and one has the vendored file alone, go through every case."""
    distributed.init_process_group("gloo")
    if RANK < OFF:
        setup_telemetry()
    broadcast = vendored().broadcast_trace_context if RANK == VENDORED else nemo_lens.api.broadcast_trace_context
    odd, alone = distributed.new_group([1, 3]), distributed.new_group([0])

    measured("no span", broadcast)
    with span_cm("step"):
        say(rank=RANK, own=inject_context({}))
        for source in range(4):
            measured(f"from {source}", lambda source=source: broadcast(src_rank=source))
        measured("rank given", lambda: broadcast(RANK, 1))
        measured("wrong rank given", lambda: broadcast(rank=3 - RANK, src_rank=1))
        measured("among the odd", lambda: broadcast(RANK, 1, odd))
        measured("among the odd, from 3", lambda: broadcast(src_rank=3, group=odd))
        measured("of no member", lambda: broadcast(src_rank=2, group=odd))
        measured("of no rank", lambda: broadcast(src_rank=4))
        measured("of no number", lambda: broadcast(src_rank="0"))
        measured("of a float", lambda: broadcast(src_rank=1.0))
        measured("alone", lambda: broadcast(group=alone))
        with with_baggage(3000):
            measured("long", broadcast)
        with with_baggage(9000):
            measured("too long", broadcast)
        with torch.device("meta"), torch.inference_mode():
            measured("in a model that is being made", broadcast)
    measured("after all", lambda: broadcast(src_rank=1))
    distributed.destroy_process_group()
    say(rank=RANK, case="destroyed", result=broadcast(), sent=[])


def a_rank_that_is_gone() -> None:
    """Rank 1 leaves without a word; the others want to broadcast."""
    distributed.init_process_group("gloo")
    distributed.barrier()
    if RANK == 1:
        os._exit(0)
    try:
        result = nemo_lens.api.broadcast_trace_context(src_rank=1)
    except Exception as fault:
        say(rank=RANK, raised=str(fault))
    else:
        say(rank=RANK, result=result)
    os._exit(0)


def alongside_activations() -> None:
    """Each rank but the first gets numbers and a context from the one before it, in rings of telemetry on and off."""
    from nemo_lens.contrib.nccl import deserialize_context, recv_context, send_context, serialize_context

    distributed.init_process_group("gloo")
    if RANK != OFF:
        setup_telemetry()
    is_last = distributed.get_world_size() == RANK + 1
    pair = distributed.new_group([0, 1])

    def stage() -> list[Any]:
        numbers, carrier = torch.zeros(2, 3), {}
        if RANK > 0:
            distributed.recv(numbers, RANK - 1)
            carrier = recv_context(RANK - 1)
        with span_cm("stage", links=[carrier]):
            say(rank=RANK, own=inject_context({}))
            numbers += RANK + 1
            if not is_last:
                distributed.send(numbers, RANK + 1)
                send_context(RANK + 1)
        return [numbers.sum().item(), carrier]

    measured("chain", stage)

    def one_way() -> Any:
        """A context given as a carrier, in a subgroup, with another size and a tag; ranks outside do nothing."""
        carrier = {"traceparent": "00-000000000000000000000000000000ab-00000000000000cd-01"}
        options = {"group": pair, "size": 128, "tag": 7}
        return send_context(1, carrier, **options) if RANK != 1 else recv_context(0, **options)

    measured("pair", one_way)

    def by_means_of_ones_own() -> Any:
        """The tensor goes in one batch with the activations, and is a link afterwards."""
        context, send, receive = torch.zeros(512, dtype=torch.uint8), distributed.isend, distributed.irecv
        with span_cm("sender"):
            if RANK == 0:
                context = serialize_context()
        if RANK < 2:
            batch = [
                distributed.P2POp(receive if RANK else send, tensor, 1 - RANK) for tensor in (torch.ones(2), context)
            ]
            for work in distributed.batch_isend_irecv(batch):
                work.wait()
        if RANK != 1:
            return None
        carrier = deserialize_context(context)
        create_linked_span(None, "receiver", remote_carrier=carrier).end()
        return carrier

    measured("batch", by_means_of_ones_own)
    distributed.destroy_process_group()
    say(rank=RANK, case="destroyed", result=[send_context(0), recv_context(0)], sent=[])


if __name__ == "__main__":
    scenario: Callable[..., None] = globals()[sys.argv[1]]
    scenario(*sys.argv[2:])
    nemo_lens.api.get_telemetry().shutdown()
    # Not through the interpreter's end, where torch aborts now and then (terminate called without an active exception).
    os._exit(0)
