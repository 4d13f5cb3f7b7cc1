"""On a machine with an NVIDIA GPU: detection beside ``nvidia-smi`` and torch."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(180)

# Attribute, column of nvidia-smi; it shows memory in MiB, rounded.
COLUMNS = {
    "nv.gpu.index": "index",
    "nv.gpu.model": "name",
    "nv.gpu.uuid": "uuid",
    "nv.gpu.serial": "serial",
    "nv.gpu.pci_bus_id": "pci.bus_id",
    "nv.gpu.compute_capability": "compute_cap",
    "nv.gpu.driver_version": "driver_version",
    "nv.gpu.memory_total": "memory.total",
}
ABSENT = ("[N/A]", "N/A", "[Not Supported]", "0", "")
PRELUDE = "import json\nfrom nemo_lens.sdk.resources import detect_gpu, detect_local\n"


@pytest.fixture(scope="module")
def told() -> list[dict[str, str]]:
    """What nvidia-smi says of each GPU, or a skip where there is none to tell of."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not here: this machine has no NVIDIA driver")
    if importlib.util.find_spec("pynvml") is None:
        pytest.skip("nvidia-ml-py is not installed: pip install 'nemo-lens-sdk[gpu]'")
    query = ["nvidia-smi", f"--query-gpu={','.join(COLUMNS.values())}", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=120, check=False)
    rows = [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())]
    if done.returncode or not rows:
        pytest.skip(f"nvidia-smi shows no GPU: {done.stdout}{done.stderr}")
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def run(code: str, **environ: str) -> Any:
    """Run a program with all GPUs visible, but for what ``environ`` says, and return what it printed as JSON."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith(("CUDA_", "LOCAL_RANK", "SLURM_"))}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env={**kept, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_gpu_as_nvidia_smi_tells(told: list[dict[str, str]]) -> None:
    """For each local rank all attributes are those that nvidia-smi shows."""
    found = run(f"print(json.dumps([detect_gpu(rank) for rank in range({len(told)})]))")
    for facts, row in zip(found, told, strict=True):
        for attribute, text in row.items():
            if attribute == "nv.gpu.memory_total" and text not in ABSENT:
                assert abs(facts[attribute] / 2**20 - float(text)) < 1
            elif text not in ABSENT or attribute == "nv.gpu.index":
                assert str(facts[attribute]).lower() == text.lower(), attribute


def test_the_count(told: list[dict[str, str]]) -> None:
    """With nothing hidden, host.gpu.count is the number of GPUs that nvidia-smi shows."""
    assert run("print(json.dumps(detect_local()))")["host.gpu.count"] == len(told)


def test_by_name(told: list[dict[str, str]]) -> None:
    """CUDA_VISIBLE_DEVICES with UUIDs, whole and shortened, names the GPUs that nvidia-smi shows under them."""
    for row in told:
        uuid = row["nv.gpu.uuid"]
        for name in (uuid, uuid[:16]):
            assert run("print(json.dumps(detect_gpu(5)))", CUDA_VISIBLE_DEVICES=name)["nv.gpu.uuid"] == uuid


def test_as_torch_counts_them(told: list[dict[str, str]]) -> None:
    """What torch sees is what is counted and described: for all GPUs, the last alone, and none."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.backends.cuda.is_built():
        pytest.skip("this torch is built without CUDA")
    code = """
import torch
devices = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
theirs = [[f"GPU-{device.uuid}", device.name, f"{device.major}.{device.minor}"] for device in devices]
ours = [detect_gpu(n) for n in range(len(devices))]
ours = [[facts["nv.gpu." + key] for key in ("uuid", "model", "compute_capability")] for facts in ours]
print(json.dumps([theirs, ours, detect_local()["host.gpu.count"]]))
"""
    last = str(len(told) - 1)
    for visible in ({}, {"CUDA_VISIBLE_DEVICES": last}, {"CUDA_VISIBLE_DEVICES": ""}):
        theirs, ours, count = run(code, CUDA_DEVICE_ORDER="PCI_BUS_ID", **visible)
        assert theirs == ours
        assert len(theirs) == count
