"""How many GPUs this process can see."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nemo_lens.api._diagnostics import debug_once
from nemo_lens.sdk.resources.cuda_devices import VARIABLE, visible_devices
from nemo_lens.sdk.resources.nvml import NvmlUnavailableError, ask, load_library

# Detection as a whole may take 200 ms: what is left is for the rest.
NVML_WITHIN_S = 0.15


def visible_gpu_count(environ: Mapping[str, str] | None = None, root: str | Path = "/") -> int | None:
    """Return the number of GPUs that CUDA would show this process, without running a program.

    The first that says: ``CUDA_VISIBLE_DEVICES`` when set, not compared with the hardware; NVML, when the driver's
    library is there and answers at once; the GPUs that the driver lists in ``/proc/driver/nvidia/gpus``.

    Args:
        environ: environment to read; default ``os.environ``.
        root: folder that holds ``proc``.

    Returns:
        The number, 0 when it is known that there is none. None, for which nothing is reported, when nothing says: no
        NVIDIA driver is there to ask, which is not to say that no other accelerator is.
    """
    return count_and_origin(environ, root)[0]


def count_and_origin(environ: Mapping[str, str] | None = None, root: str | Path = "/") -> tuple[int | None, str]:
    """Return what ``visible_gpu_count`` does, and for a person to read what says so, or why nothing does."""
    environ = os.environ if environ is None else environ
    devices = visible_devices(environ)
    if devices is not None:
        return len(devices), f"{VARIABLE}={environ[VARIABLE]}"
    try:
        return ask(lambda nvml: int(nvml.nvmlDeviceGetCount()), NVML_WITHIN_S, load_library), "NVML"
    except NvmlUnavailableError as fault:
        debug_once("gpu count", "the GPUs are counted without NVML: %s", fault)
        reason = str(fault)
    folder = Path(root, "proc/driver/nvidia/gpus")
    try:
        return sum(entry.is_dir() for entry in folder.iterdir()), f"{folder} ({reason})"
    except OSError:
        return None, f"nothing says: {reason}"
