"""The budget of resource detection: the wall time of the first call in a process, and of later ones."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from _timing import Budget, settled

from support.nvidia import Machine, gpus

PROCESSES = 7
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_ARRAY_JOB_ID": "4700",
    "SLURM_ARRAY_TASK_ID": "11",
    "SLURM_CLUSTER_NAME": "alpha",
    "SLURM_JOB_NAME": "train",
    "SLURM_JOB_USER": "jane",
    "SLURM_JOB_PARTITION": "batch",
    "SLURM_JOB_NUM_NODES": "64",
    "SLURM_NTASKS": "512",
    "SLURM_JOB_NODELIST": "gpu-a[001-032],gpu-b[01-32]",
    "SLURM_STEP_ID": "0",
    "SLURM_LOCALID": "3",
    "SLURM_PROCID": "11",
    "SLURMD_NODENAME": "gpu-a002",
    "SLURM_TOPOLOGY_ADDR": "s0.s1.gpu-a002",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node",
    "OTEL_RESOURCE_ATTRIBUTES": ",".join(f"slurm.inherited.{n}=value%20{n}" for n in range(40)),
}
KUBERNETES = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "POD_NAME": "train-0",
    "POD_NAMESPACE": "ml",
    "POD_UID": "7c1f0a52-1111-2222-3333-444455556666",
    "NODE_NAME": "node-7",
    "K8S_CONTAINER_NAME": "trainer",
}
HIDDEN = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}

# The case, GPUs of the driver or None for no driver, rules of the driver, environment, what is aimed at in ms.
CASES = [
    ("no driver", None, (), {}, 20),
    ("8 GPUs through NVML", 8, (), {}, 20),
    ("SLURM", None, (), {**SLURM, **HIDDEN}, 20),
    ("Kubernetes", None, (), {**KUBERNETES, **HIDDEN}, 20),
    # All that it may take, as nothing can be known sooner.
    ("NVML hangs", 8, ("hang nvmlInit",), {}, 180),
]

_MEASURE = """
seconds = []
for _ in range(21):
    start = time.perf_counter()
    found = detect_resource()
    seconds.append(time.perf_counter() - start)
    assert "host.name" in found
say(seconds)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("case", "devices", "rules", "environ", "target"), CASES, ids=[case[0] for case in CASES])
def test_detection(
    case: str,
    devices: int | None,
    rules: tuple[str, ...],
    environ: dict[str, str],
    target: int,
    tmp_path: Path,
    report: Callable[..., None],
) -> None:
    """Detection in a fresh process takes 20 ms, with a hanging `nvidia-smi` beside it too, and never more than 200."""
    budget = Budget(f"detect_resource() first in a process, {case}, in ms", "wall time", target, 200)
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nwhile :; do sleep 1000; done\n")
    program.chmod(0o755)
    machine = Machine(tmp_path, gpus(devices or 0), rules, driver=devices is not None)
    environ = {**environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def measure() -> tuple[float, str]:
        runs = [machine.run(_MEASURE, environ).value for _ in range(PROCESSES)]
        first = statistics.median(run[0] for run in runs) * 1000
        later = statistics.median(second for run in runs for second in run[1:]) * 1000
        return first, f"best {min(run[0] for run in runs) * 1000:.2f} ms, later calls {later:.2f} ms"

    figure, detail = settled(budget, measure)
    report(budget, figure, detail)
    assert figure <= budget.limit
    assert not (tmp_path / "started").exists()
