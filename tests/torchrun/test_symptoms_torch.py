"""Symptoms of the troubleshooting page that need torch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torchrun_runs import QUIET, needs_torch

from support.symptoms import Lab, Symptom, symptom

pytestmark = [needs_torch, pytest.mark.timeout(150)]

# torch takes seconds to load, so both ways are tried in one process, what the page advises first.
COMPILED = """
import torch
from nemo_lens.api import SpanRegistry, managed_span, set_enabled_span_groups, setup_telemetry
SpanRegistry.register("mytrainer", ["step", "layer"], presets={"default": ["step", "layer"]})
setup_telemetry(resource_attributes={"nv.dl.rank": 0})

def forward(x):
    with managed_span("layer", "layer"):
        return x * 2

compiled = torch.compile(forward, fullgraph=True, backend="eager")
with managed_span("step", "train.step"):
    print(compiled(torch.ones(2)).sum().item(), flush=True)
set_enabled_span_groups(["step", "layer"])
compiled(torch.ones(2))
"""

# Every rank calls once, and then rank 1 alone, under the condition that the page warns of.
BROADCAST = """
import faulthandler, os, sys, time
import torch.distributed as distributed
from nemo_lens.api import broadcast_trace_context, setup_telemetry, span_cm
distributed.init_process_group("gloo")
rank = distributed.get_rank()

def say(words):
    os.write(1, f"{words}\\n".encode())  # at once: the ranks share the pipe, and print writes its parts one by one

setup_telemetry(resource_attributes={"nv.dl.rank": rank})
with span_cm("step"):
    say(f"all call: {broadcast_trace_context(rank)}")
    if rank == 1:
        faulthandler.dump_traceback_later(1, file=sys.stderr)
        say(f"one calls: {broadcast_trace_context(rank)}")
    else:
        time.sleep(4)  # at something else; then it ends, and with it the wait of the other
"""


@symptom("torch.compile breaks the graph or refuses fullgraph")
def test_compile(case: Symptom, tmp_path: Path) -> None:
    """As the page advises it compiles and steps are traced; with the group inside compiled code on, it is refused."""
    ended = Lab(tmp_path).run(COMPILED, cure=case.cure())
    assert ended.out.strip() == "4.0", ended.err
    assert ended.written.names() == ["train.step"]
    assert ended.code == 1
    case.seen(ended.err)


@symptom("The job hangs in a collective since spans are broadcast")
def test_hanging_broadcast(case: Symptom, tmp_path: Path) -> None:
    """Where every rank calls it, it returns; the stack of a rank that calls alone names the call."""
    job = tmp_path / "job.py"
    job.write_text(BROADCAST)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(job)]
    ended = Lab(tmp_path).run(f"import subprocess, sys; sys.exit(subprocess.run({command!r}).returncode)", **QUIET)
    assert ended.out.count("all call: {'traceparent'") == 2, ended.out + ended.err
    assert "one calls:" not in ended.out
    stack = ended.err.partition("Timeout (")[2]
    assert "job.py" in stack
    case.seen(stack)
