"""The detectors together: named by any OpenTelemetry application, and in a row in ``detect_resource``."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_lens.api._diagnostics import forget_reported
from nemo_lens.sdk.resources import detect_resource

ALL_FOUR = "nemo_lens_local,nemo_lens_slurm,nemo_lens_kubernetes,nemo_lens_gpu"
PLACE = {
    "CUDA_VISIBLE_DEVICES": "3",
    "SLURM_JOB_ID": "4711",
    "SLURM_RESTART_COUNT": "2",
    "POD_NAME": "train-0-x7k2p",
    "NODE_NAME": "gpu-node-07",
}
FOUND = {
    "host.gpu.count": 1,
    "slurm.job.id": "4711",
    "slurm.restart_count": 2,
    "k8s.pod.name": "train-0-x7k2p",
    "k8s.node.name": "gpu-node-07",
    "nv.gpu.index": 3,
    "nv.gpu.model": "NVIDIA H200",
}

# NVML of a machine whose GPU says only its index and model, in place of a driver that is rarely there.
NVML = """
import sys, types

class NVMLError(Exception):
    def __init__(self, value):
        self.value = value

def unsupported(*of):
    raise NVMLError(3)

nvml = types.ModuleType("pynvml")
nvml.NVMLError, nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND = NVMLError, 3, 13
nvml.__getattr__ = lambda name: unsupported
nvml.nvmlInit = nvml.nvmlShutdown = lambda: None
nvml.nvmlDeviceGetCount = lambda: 8
nvml.nvmlDeviceGetHandleByIndex = nvml.nvmlDeviceGetIndex = lambda index: index
nvml.nvmlDeviceGetName = lambda handle: "NVIDIA H200"
sys.modules["pynvml"] = nvml
"""
APPLICATION = """
import json, logging
logging.basicConfig()
from opentelemetry.sdk.trace import TracerProvider
print(json.dumps(dict(TracerProvider().resource.attributes)))
"""
NO_HOST_NAME = """
import socket
def gethostname():
    raise OSError("no host name here")
socket.gethostname = gethostname
"""


@pytest.fixture(autouse=True)
def _nothing_reported() -> Iterator[None]:
    forget_reported()
    yield
    forget_reported()


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = ("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "TMPDIR")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**variables, **PLACE, "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": ALL_FOUR, **environment},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return done


def resource(program: str, **environment: str) -> dict[str, Any]:
    attributes = json.loads(run(program, **environment).stdout)
    assert isinstance(attributes, dict)
    return attributes


def test_an_opentelemetry_application_names_the_detectors() -> None:
    """All four give their attributes to an application that knows nothing of Lens, with their types."""
    attributes = resource(NVML + APPLICATION)
    assert {key: attributes.get(key) for key in FOUND} == FOUND
    assert attributes["host.name"] == socket.gethostname()
    assert type(attributes["process.pid"]) is int


def test_a_detector_that_is_not_named_does_not_run() -> None:
    """Naming one detector brings its attributes alone."""
    attributes = resource(NVML + APPLICATION, OTEL_EXPERIMENTAL_RESOURCE_DETECTORS="nemo_lens_kubernetes")
    prefixes = ("k8s.", "slurm.", "nv.gpu.", "host.gpu.")
    assert {key for key in attributes if key.startswith(prefixes)} == {"k8s.pod.name", "k8s.node.name"}


def test_a_detector_that_fails_does_not_break_the_others() -> None:
    """OpenTelemetry reports the failing one and keeps what the rest found."""
    done = run(NVML + NO_HOST_NAME + APPLICATION)
    attributes = json.loads(done.stdout)
    assert "no host name here" in done.stderr
    others = {key: value for key, value in FOUND.items() if not key.startswith("host.")}
    assert {key: attributes.get(key) for key in others} == others
    assert "host.gpu.count" not in attributes


@pytest.mark.parametrize("seed", ["0", "1", "2", "3"])
def test_what_is_inherited_wins_in_an_opentelemetry_application(seed: str) -> None:
    """``OTEL_RESOURCE_ATTRIBUTES`` wins over detection, in whatever order OpenTelemetry merges its detectors."""
    given = {"host.name": "mine", "k8s.pod.name": "mine", "nv.gpu.model": "mine"}
    attributes = resource(
        NVML + APPLICATION,
        OTEL_RESOURCE_ATTRIBUTES=",".join(f"{key}={value}" for key, value in given.items()),
        PYTHONHASHSEED=seed,
    )
    assert {key: attributes.get(key) for key in given} == given
    assert attributes["k8s.node.name"] == "gpu-node-07"


def test_detect_resource_is_local_slurm_and_kubernetes() -> None:
    """The three detectors in one mapping; the GPU's, which would start NVML, is not among them."""
    found = detect_resource(PLACE)
    assert found["host.name"] == socket.gethostname()
    assert found["process.pid"] == os.getpid()
    expected = {key: value for key, value in FOUND.items() if not key.startswith("nv.gpu.")}
    assert {key: found.get(key) for key in expected} == expected
    assert not [key for key in found if key.startswith("nv.gpu.")]


class _Failing(dict[str, str]):
    """An environment that fails where variables of a prefix are read."""

    def __init__(self, variables: dict[str, str], prefix: str) -> None:
        super().__init__(variables)
        self.prefix = prefix

    def get(self, name: str, default: Any = None) -> Any:
        if name.startswith(self.prefix):
            raise OSError(f"{name} cannot be read")
        return super().get(name, default)


@pytest.mark.parametrize(
    ("detector", "reads", "lost"),
    [("local", "CUDA_", "host."), ("slurm", "SLURM_", "slurm."), ("kubernetes", "K8S_", "k8s.")],
)
def test_a_detector_that_fails_is_logged_once_and_skipped(
    caplog: pytest.LogCaptureFixture, detector: str, reads: str, lost: str
) -> None:
    """One WARNING names the detector and what went wrong, however often it fails; the others' findings are there."""
    for _ in range(3):
        found = detect_resource(_Failing(PLACE, reads))
    assert not [key for key in found if key.startswith(lost)]
    expected = {key: value for key, value in FOUND.items() if not key.startswith((lost, "nv.gpu."))}
    assert {key: found.get(key) for key in expected} == expected
    (warning,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert repr(detector) in warning.getMessage()
    assert "cannot be read" in warning.getMessage()


def test_detection_runs_no_program(tmp_path: Path) -> None:
    """Neither a tool on ``PATH`` nor a fork: detection only reads."""
    program = """
import os, sys

def refuse(event, arguments):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"):
        raise AssertionError(event)

from nemo_lens.sdk.resources import detect_gpu, detect_resource
del os.environ["CUDA_VISIBLE_DEVICES"]  # else nothing is left to ask
sys.addaudithook(refuse)
print("host.name" in detect_resource(), isinstance(detect_gpu(), dict))
"""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nsleep 600\n")
    tool.chmod(0o755)
    done = run(program, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert done.stdout.split() == ["True", "True"]
    assert "Error" not in done.stderr
