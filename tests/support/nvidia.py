"""Machines with NVIDIA GPUs, without one: the real ``pynvml`` over a library of ours that stands for the driver's."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from support.all_signals import clean_environ

_SOURCE = Path(__file__).parent / "fake_nvml" / "fake_nvml.c"
GIB = 2**30

# Before each program: its log on stderr, its findings as one JSON value a line.
_PRELUDE = """
import json, logging, os, sys, time
logging.basicConfig(format="%(levelname)s %(message)s")
logging.getLogger("nemo_lens").setLevel(logging.DEBUG)
from nemo_lens.sdk.resources import detect_gpu, detect_local, detect_resource
from nemo_lens.sdk.resources.gpu_count import visible_gpu_count
def say(value):
    print(json.dumps(value), flush=True)
"""
# Python 3.12 and later warn of every fork beside threads, and a call that hangs is left in one.
_WARNINGS = ("-W", "error", "-W", "ignore:This process (pid:DeprecationWarning")


@dataclass(frozen=True)
class Mig:
    """A part of a GPU."""

    uuid: str
    gpu_instance: int = 1
    compute_instance: int = 0
    memory: int = 10 * GIB


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML tells of it; an empty serial is one that it does not support."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    serial: str = "1652123000001"
    pci_bus_id: str = "00000000:1B:00.0"
    compute_capability: str = "9.0"
    memory: int = 80 * GIB
    migs: tuple[Mig, ...] = ()


def gpus(count: int) -> tuple[Gpu, ...]:
    """Return GPUs whose UUIDs begin with their number: ``GPU-0...``, ``GPU-1...``."""
    return tuple(
        Gpu(f"GPU-{n}932f937-d72c-4106-c12f-20bd9faed9f6", serial=f"165212300000{n}", pci_bus_id=f"00000000:{n}B:00.0")
        for n in range(count)
    )


@dataclass(frozen=True)
class Said:
    """What a program found, what it logged at DEBUG and above, and how long it took."""

    values: list[Any]
    log: list[str]
    seconds: float

    @property
    def value(self) -> Any:
        """The one value said."""
        (value,) = self.values
        return value

    def logged(self, level: str) -> list[str]:
        """Return the lines of one level."""
        return [line.removeprefix(f"{level} ") for line in self.log if line.startswith(f"{level} ")]


@dataclass
class Machine:
    """A machine with GPUs and a driver that answers by ``rules``: lines of ``fake_nvml.c``, with blanks for tabs."""

    folder: Path
    gpus: Iterable[Gpu] = ()
    rules: Iterable[str] = ()
    driver: bool = True
    environ: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._log = self.folder / "nvml-calls"
        if not self.driver:
            # Hides the library that a machine with a driver has: the loader finds this, and refuses it.
            (self.folder / "libnvidia-ml.so.1").write_text("not a library\n" * 100)
            self.environ = {"LD_LIBRARY_PATH": str(self.folder)}
            return
        lines = ["driver\t570.86.15", f"log\t{self._log}", *("\t".join(rule.split()) for rule in self.rules)]
        for gpu in self.gpus:
            facts = (gpu.uuid, gpu.name, gpu.serial, gpu.pci_bus_id, gpu.compute_capability, str(gpu.memory))
            lines.append("\t".join(("gpu", *facts)))
            lines.extend(f"mig\t{m.uuid}\t{m.gpu_instance}\t{m.compute_instance}\t{m.memory}" for m in gpu.migs)
        description = self.folder / "machine"
        description.write_text("\n".join(lines) + "\n")
        self.environ = {"FAKE_NVML": str(description), "LD_LIBRARY_PATH": str(library_or_skip().parent)}

    def calls(self) -> list[str]:
        """Return the NVML functions called so far."""
        return self._log.read_text().split() if self._log.exists() else []

    def run(self, code: str, environ: Mapping[str, str] | None = None, warnings: Iterable[str] = _WARNINGS) -> Said:
        """Run a program on the machine, after the prelude that gives it the detectors and ``say``."""
        kept = {key: value for key, value in clean_environ({}).items() if not key.startswith(("CUDA_", "K8S_", "POD_"))}
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, *warnings, "-c", _PRELUDE + code],
            env={**kept, **self.environ, **(environ or {})},
            capture_output=True,
            text=True,
            timeout=45,
            check=False,
        )
        seconds = time.monotonic() - start
        assert done.returncode == 0, done.stderr
        return Said([json.loads(line) for line in done.stdout.splitlines()], done.stderr.splitlines(), seconds)


@functools.cache
def library_or_skip() -> Path:
    """Compile the library and return its path; skip the test when it or ``pynvml`` cannot be had, fail in CI."""
    if importlib.util.find_spec("pynvml") is None:
        _skip("nvidia-ml-py is not installed: pip install nvidia-ml-py")
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        _skip("there is no C compiler to build the NVML library with: apt-get install gcc libc6-dev")
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-pthread", "-o", library, _SOURCE]
    built = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert built.returncode == 0, built.stderr
    return library


def _skip(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
