"""On a machine with NVIDIA GPUs and NCCL: contexts travel as CUDA tensors, to each rank's own GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch finds no CUDA GPU here", allow_module_level=True)
if not torch.distributed.is_nccl_available():
    pytest.skip("this build of torch has no NCCL", allow_module_level=True)

from nemo_lens.api.fallbacks import carrier_tensor, pack_carrier  # noqa: E402 - after the skip
from nemo_lens.contrib.nccl import deserialize_context  # noqa: E402 - after the skip
from support.all_signals import clean_environ  # noqa: E402 - after the skip
from support.network import own_network  # noqa: E402 - after the skip

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]

PROGRAM = """
import json, os, sys
import torch
from torch import distributed
from nemo_lens.api import SpanRegistry, broadcast_trace_context, inject_context, setup_telemetry, span_cm
from nemo_lens.api.fallbacks import broadcast_carrier, device_of
from nemo_lens.contrib.nccl import deserialize_context, recv_context, send_context, serialize_context

SpanRegistry.register("ranks", ["step"], {"default": ["step"]})
backend, bind = sys.argv[1], sys.argv[2] == "bind"
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
own = torch.device("cuda", rank)
if bind:
    distributed.init_process_group(backend, device_id=own)
else:
    torch.cuda.set_device(own)
    distributed.init_process_group(backend)
if rank == 0:
    setup_telemetry()
with span_cm("step"):
    found = {"rank": rank, "device": str(torch.empty(1, device=device_of(None)).device), "own": inject_context({})}
    found["broadcast"] = broadcast_trace_context(rank)
    found["serialized"] = str(serialize_context().device)
    found["deserialized"] = deserialize_context(serialize_context())
    if size == 1:  # a collective all the same: that NCCL takes the tensor
        tensor = serialize_context()
        distributed.broadcast(tensor, 0)
        found["broadcast"] = deserialize_context(tensor)
    elif rank == 0:
        distributed.send(torch.ones(8, device=own), 1)
        send_context(1)
    elif rank == 1:
        numbers = torch.zeros(8, device=own)
        distributed.recv(numbers, 0)
        found["received"] = [recv_context(0), numbers.sum().item()]
os.write(1, (json.dumps(found) + "\\n").encode())
distributed.destroy_process_group()
"""


def launch(tmp_path: Path, ranks: int, *arguments: str) -> dict[int, dict[str, object]]:
    program = tmp_path / "ranks.py"
    program.write_text(PROGRAM)
    files = {"NEMO_LENS_EXPORTER": "file", "NEMO_LENS_FILE_PATH": str(tmp_path / "{signal}-{pid}.jsonl")}
    done = subprocess.run(
        [
            *own_network("torch's stores bind"),
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"),
            *(str(program), *arguments),
        ],
        env=clean_environ({"NEMO_LENS_ENABLED": "1", "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", **files}),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {fact["rank"]: fact for fact in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("bind", ["bind", "set_device"])
def test_alone_with_nccl(tmp_path: Path, bind: str) -> None:
    """With NCCL alone the tensor is on this rank's GPU, NCCL takes it, and it holds the context."""
    (said,) = launch(tmp_path, 1, "nccl", bind).values()
    assert said["device"] == said["serialized"] == "cuda:0"
    assert said["own"]
    assert said["broadcast"] == said["deserialized"] == said["own"]


def test_with_gloo_beside_nccl_the_gpu_is_left_alone(tmp_path: Path) -> None:
    """Where the group takes CPU tensors too, the context goes by gloo and nobody waits for a GPU."""
    (said,) = launch(tmp_path, 1, "cpu:gloo,cuda:nccl", "set_device").values()
    assert said["device"] == said["serialized"] == "cpu"
    assert said["broadcast"] == said["own"]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two ranks of NCCL need two GPUs")
@pytest.mark.parametrize("bind", ["bind", "set_device"])
def test_two_ranks_with_nccl(tmp_path: Path, bind: str) -> None:
    """Each rank uses its own GPU; both have the context of rank 0, also the one with telemetry off."""
    said = launch(tmp_path, 2, "nccl", bind)
    assert [said[rank]["device"] for rank in (0, 1)] == ["cuda:0", "cuda:1"]
    assert said[1]["own"] == {}
    assert said[0]["broadcast"] == said[1]["broadcast"] == said[0]["own"]
    assert said[1]["received"] == [said[0]["own"], 8.0]


def test_a_context_on_the_gpu_is_read() -> None:
    """A tensor that came to the GPU is read there, and one that is no context is refused without a copy of it."""
    carrier = {"traceparent": "00-000000000000000000000000000000ab-00000000000000cd-01"}
    tensor = carrier_tensor(pack_carrier(carrier, 512), None).cuda()
    assert deserialize_context(tensor) == carrier
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        bad = [
            deserialize_context(other) for other in (tensor.expand(64, 512), tensor.to(torch.int8), tensor.repeat(99))
        ]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert bad == [{}, {}, {}]
