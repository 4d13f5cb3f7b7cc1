"""The GPU this process computes on, as NVML describes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import index
from typing import Any, NamedTuple

from nemo_lens.api._diagnostics import debug_once, warn_once
from nemo_lens.api.semconv import (
    NV_GPU_COMPUTE_CAPABILITY,
    NV_GPU_DRIVER_VERSION,
    NV_GPU_INDEX,
    NV_GPU_MEMORY_TOTAL,
    NV_GPU_MODEL,
    NV_GPU_PCI_BUS_ID,
    NV_GPU_SERIAL,
    NV_GPU_UUID,
)
from nemo_lens.sdk.resources.cuda_devices import VARIABLE, visible_devices
from nemo_lens.sdk.resources.nvml import NvmlUnavailableError, ask
from nemo_lens.sdk.resources.slurm import in_task_step

# Runs only when called, so it may wait for a driver that starts slowly, as without persistence mode.
NVML_WITHIN_S = 2.0


class _Device(NamedTuple):
    """What NVML is asked about: ``own`` is the MIG device where there is one, ``gpu`` the GPU it is a part of."""

    own: Any
    gpu: Any


def _text(value: str | bytes) -> str:
    # Older releases return bytes.
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# Attribute, function of pynvml, what it is asked about (None: the machine), how its answer is put.
_FACTS: tuple[tuple[str, str, str | None, Callable[[Any], str | int]], ...] = (
    (NV_GPU_INDEX, "nvmlDeviceGetIndex", "gpu", int),
    (NV_GPU_MODEL, "nvmlDeviceGetName", "gpu", _text),
    (NV_GPU_UUID, "nvmlDeviceGetUUID", "own", _text),
    (NV_GPU_SERIAL, "nvmlDeviceGetSerial", "gpu", _text),
    (NV_GPU_PCI_BUS_ID, "nvmlDeviceGetPciInfo", "gpu", lambda info: _text(info.busId)),
    (NV_GPU_COMPUTE_CAPABILITY, "nvmlDeviceGetCudaComputeCapability", "gpu", lambda version: "{}.{}".format(*version)),
    (NV_GPU_MEMORY_TOTAL, "nvmlDeviceGetMemoryInfo", "own", lambda memory: int(memory.total)),
    (NV_GPU_DRIVER_VERSION, "nvmlSystemGetDriverVersion", None, _text),
)


def detect_gpu(local_rank: int | None = None, environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """Return the ``nv.gpu.*`` attributes of this process's GPU, in at most two seconds.

    The GPU is the entry of ``CUDA_VISIBLE_DEVICES`` at the local rank, a number or the UUID of a GPU or a MIG device;
    where only one is visible it is that one, whatever the local rank. Without the variable the local rank is NVML's
    index. NVML counts in the order of the PCI bus, CUDA the fastest first unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``:
    where a machine mixes models, set that.

    Of a MIG device ``nv.gpu.uuid`` and ``nv.gpu.memory_total`` are its own, all else is the GPU's.

    Args:
        local_rank: number of this process on its node; default ``LOCAL_RANK``, else ``SLURM_LOCALID`` in a task of a
            step, else 0, CUDA's own default.
        environ: environment to read; default ``os.environ``.

    Returns:
        What NVML says; without what it does not support, and empty without NVML or a GPU. Faults are logged once.

    Raises:
        TypeError: when ``local_rank`` is no integer.
    """
    environ = os.environ if environ is None else environ
    devices = visible_devices(environ)
    if devices == ():
        return {}
    rank = _local_rank(environ) if local_rank is None else index(local_rank)
    facts: dict[str, str | int] = {}
    faults: list[str] = []
    try:
        entry = None if devices is None else _at(devices, rank, f"entries of {VARIABLE}")
        ask(lambda pynvml: _describe(pynvml, entry, rank, facts, faults), NVML_WITHIN_S)
    except NvmlUnavailableError as fault:
        log = debug_once if fault.absent else warn_once
        log(("gpu", str(fault)), "the GPU is not described%s: %s", " further" if facts else "", fault)
    if faults:
        warn_once(("gpu", "facts"), "NVML does not say all of the GPU: %s", "; ".join(faults))
    # A copy: what is left behind may write on.
    return dict(facts)


def _local_rank(environ: Mapping[str, str]) -> int:
    # The batch step of a SLURM job has a SLURM_LOCALID too, which is no rank.
    names = ("LOCAL_RANK", "SLURM_LOCALID") if in_task_step(environ) else ("LOCAL_RANK",)
    texts = (environ.get(name, "").strip() for name in names)
    return next((int(text) for text in texts if text.isascii() and text.isdigit()), 0)


def _at(devices: Sequence[int] | Sequence[str], rank: int, what: str) -> int | str:
    if len(devices) == 1:
        return devices[0]
    if not 0 <= rank < len(devices):
        raise NvmlUnavailableError(f"the local rank {rank} is not among the {len(devices)} {what}")
    return devices[rank]


def _describe(pynvml: Any, entry: int | str | None, rank: int, facts: dict[str, str | int], faults: list[str]) -> None:
    """Add the facts of a GPU to ``facts``, and what went wrong on the way to others to ``faults``."""
    usual = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    if entry is None:
        entry = _at(range(pynvml.nvmlDeviceGetCount()), rank, "GPUs that NVML shows")
    device = _device(pynvml, entry)
    for attribute, function, of, put in _FACTS:
        try:
            value = put(getattr(pynvml, function)(*(() if of is None else (getattr(device, of),))))
        except pynvml.NVMLError as fault:
            if fault.value not in usual:
                faults.append(f"{attribute} ({fault!r})")
        else:
            if value != "":
                facts[attribute] = value


def _device(pynvml: Any, entry: int | str) -> _Device:
    if isinstance(entry, int):
        gpu = pynvml.nvmlDeviceGetHandleByIndex(entry)
        return _Device(gpu, gpu)
    devices = list(_mig_devices(pynvml) if entry.startswith("MIG-") else _gpus(pynvml))
    # A shortened name must fit one device alone; a whole one may be how another begins (`MIG-GPU-.../1/1`, `.../1/10`).
    for fits in (str.__eq__, str.startswith):
        found = [device for names, device in devices if any(fits(name, entry) for name in names)]
        if len(found) == 1:
            return found[0]
    many = f"fits {len(found)}" if found else "is none"
    raise NvmlUnavailableError(f"{entry!r} of {VARIABLE} {many} of the devices that NVML shows")


def _gpus(pynvml: Any) -> Iterator[tuple[tuple[str, ...], _Device]]:
    for number in range(pynvml.nvmlDeviceGetCount()):
        # One that is lost must not hide the others.
        with suppress(pynvml.NVMLError):
            gpu = pynvml.nvmlDeviceGetHandleByIndex(number)
            yield (_text(pynvml.nvmlDeviceGetUUID(gpu)),), _Device(gpu, gpu)


def _mig_devices(pynvml: Any) -> Iterator[tuple[tuple[str, ...], _Device]]:
    for (uuid,), (_, gpu) in _gpus(pynvml):
        most = 0
        with suppress(pynvml.NVMLError):
            most = pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
        for number in range(most):
            # Their numbers have gaps.
            with suppress(pynvml.NVMLError):
                own = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
                instances = pynvml.nvmlDeviceGetGpuInstanceId(own), pynvml.nvmlDeviceGetComputeInstanceId(own)
                # The name that drivers before R470 gave it.
                old = "MIG-{}/{}/{}".format(uuid, *instances)
                yield (_text(pynvml.nvmlDeviceGetUUID(own)), old), _Device(own, gpu)
