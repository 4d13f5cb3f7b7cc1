"""``CUDA_VISIBLE_DEVICES`` and NVML beside torch, whose reading of both was tested against CUDA itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed; nox -s torchrun installs it")

from nemo_lens.sdk.resources.cuda_devices import visible_devices  # noqa: E402 - after the skip
from nemo_lens.sdk.resources.gpu_count import visible_gpu_count  # noqa: E402 - after the skip
from support.nvidia import Machine, gpus  # noqa: E402 - after the skip

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]

ENTRIES = st.one_of(
    st.integers(-2, 9).map(str),
    st.sampled_from(["GPU-8932f937", "GPU-1", "GPU-", "MIG-c6d4", "MIG-GPU-8932f937/1/0", "NoDevFiles", "none", ""]),
    st.text("0123456789+- gxGPUMIG-/", max_size=6),
)
LISTS = st.lists(ENTRIES, max_size=5).map(",".join)


@given(LISTS)
@settings(max_examples=1000, deadline=None)
@example("1gpu2,2ampere")
@example("2, +3, -0, 5")
@example("one,two,3")
@example("4,3,two")
@example("GPU-123, 2")
@example("0,-1,1")
@example("0,0")
@example("MIG-89c850dc,MIG-89c850dc")
def test_read_as_torch_reads_it(value: str) -> None:
    """The entries that count are torch's, but for MIG devices, of which CUDA shows the first and torch counts none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", value)
        try:
            peer = torch.cuda._parse_visible_devices()
        except ValueError:  # torch cannot read a sign alone
            assert visible_gpu_count() is not None
            return
        if value.startswith("MIG-"):
            peer = peer[:1]
        assert visible_devices(os.environ) == tuple(peer)
        assert visible_gpu_count() == len(peer)


@pytest.mark.parametrize("value", [None, "1,0", "GPU-2,GPU-1", gpus(4)[3].uuid, "GPU-0,GPU-9"])
def test_nvml_asked_as_torch_asks_it(value: str | None, tmp_path: Path) -> None:
    """Over one NVML, the count and the device of local rank 0 are those that torch finds."""
    machine = Machine(tmp_path, gpus(4))
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    ours = machine.run("say([visible_gpu_count(), detect_gpu(0).get('nv.gpu.index')])", environ)
    peer = """
import json, torch.cuda
names = torch.cuda._parse_visible_devices()
if names and isinstance(names[0], str):
    names = torch.cuda._transform_uuid_to_ordinals(names, torch.cuda._raw_device_uuid_nvml())
print(json.dumps([torch.cuda._device_count_nvml(), names[0] if names else None]))
"""
    kept = {key: text for key, text in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-c", peer],
        env={**kept, **machine.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, first = json.loads(done.stdout)
    if value == "GPU-0,GPU-9":
        count += 1  # what the machine does not have is not taken off, as no hardware is looked at
    assert ours.value == [count, first]
