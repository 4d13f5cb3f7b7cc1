"""Which GPU a process computes on, and what NVML says of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from nemo_lens.api.semconv import RESOURCE_FIELDS
from nemo_lens.sdk.resources import detect_gpu
from support.nvidia import GIB, Gpu, Machine, Mig, Said, gpus

EIGHT = gpus(8)
MIG, OTHER_MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-03ac4a54-6e3c-5c2f-b3ae-1b6d1a0d1a3c"
SPLIT = (
    EIGHT[0],
    Gpu(
        EIGHT[1].uuid,
        "NVIDIA A100-SXM4-80GB",
        migs=(
            Mig(MIG, 1, 0, 10 * GIB),
            Mig(OTHER_MIG, 2, 0, 20 * GIB),
            Mig("MIG-03ac4a54-b", 1, 1),
            Mig("MIG-d", 1, 10),
        ),
    ),
)
STEP = {"SLURM_STEP_ID": "0", "SLURM_LOCALID": "2"}


def detect(machine: Machine, environ: dict[str, str] | None = None, arguments: str = "") -> Said:
    return machine.run(f"say(detect_gpu({arguments}))", environ)


def test_everything_nvml_says(tmp_path: Path) -> None:
    """All nv.gpu.* attributes are there, of the type that the table of names says, in the words of NVML."""
    said = detect(Machine(tmp_path, EIGHT), arguments="3")
    assert said.value == {
        "nv.gpu.index": 3,
        "nv.gpu.model": "NVIDIA H100 80GB HBM3",
        "nv.gpu.uuid": "GPU-3932f937-d72c-4106-c12f-20bd9faed9f6",
        "nv.gpu.serial": "1652123000003",
        "nv.gpu.pci_bus_id": "00000000:3B:00.0",
        "nv.gpu.compute_capability": "9.0",
        "nv.gpu.memory_total": 80 * GIB,
        "nv.gpu.driver_version": "570.86.15",
    }
    assert {name: type(value) for name, value in said.value.items()} == {
        name: kind for name, kind in RESOURCE_FIELDS.items() if name.startswith("nv.gpu.")
    }
    assert not said.log


@pytest.mark.parametrize(
    ("environ", "arguments", "index"),
    [
        # The local rank: the argument, torchelastic's, that of a task of a SLURM step, CUDA's default.
        ({}, "", 0),
        ({"LOCAL_RANK": "5"}, "", 5),
        ({"LOCAL_RANK": "5"}, "1", 1),
        ({"LOCAL_RANK": "5"}, "0", 0),
        ({"LOCAL_RANK": "5", **STEP}, "", 5),
        ({"LOCAL_RANK": "", **STEP}, "", 2),
        ({"LOCAL_RANK": "x"}, "", 0),
        (STEP, "", 2),
        ({"SLURM_STEPID": "3", "SLURM_LOCALID": "2"}, "", 2),
        # The batch step's is no rank: no step id, or a negative one.
        ({"SLURM_LOCALID": "2"}, "", 0),
        ({"SLURM_STEP_ID": "-5", "SLURM_LOCALID": "2"}, "", 0),
        # CUDA_VISIBLE_DEVICES is counted through, and what it hides does not count.
        ({"CUDA_VISIBLE_DEVICES": "4,5,6,7", "LOCAL_RANK": "1"}, "", 5),
        ({"CUDA_VISIBLE_DEVICES": "7,6"}, "", 7),
        ({"CUDA_VISIBLE_DEVICES": "4,5,-1,6", "LOCAL_RANK": "1"}, "", 5),
        # Bound to one GPU by the launcher, a task has that one.
        ({"CUDA_VISIBLE_DEVICES": "6", "LOCAL_RANK": "6"}, "", 6),
        ({"CUDA_VISIBLE_DEVICES": "3", **STEP}, "", 3),
        # By name, whole or shortened.
        ({"CUDA_VISIBLE_DEVICES": f"{EIGHT[2].uuid},{EIGHT[6].uuid}", "LOCAL_RANK": "1"}, "", 6),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5932f937"}, "", 5),
        ({"CUDA_VISIBLE_DEVICES": "GPU-5,GPU-2", "LOCAL_RANK": "1"}, "", 2),
    ],
)
def test_the_gpu_of_this_process(environ: dict[str, str], arguments: str, index: int, tmp_path: Path) -> None:
    """The GPU is the entry of CUDA_VISIBLE_DEVICES at the local rank, or the only one."""
    said = detect(Machine(tmp_path, EIGHT), environ, arguments)
    assert (said.value["nv.gpu.index"], said.value["nv.gpu.uuid"]) == (index, EIGHT[index].uuid)
    assert not said.log


def test_the_only_gpu_of_the_machine(tmp_path: Path) -> None:
    """Where NVML shows one GPU, as in a container or a cgroup of one task, it is that one whatever the local rank."""
    assert detect(Machine(tmp_path, gpus(1)), {"LOCAL_RANK": "5"}).value["nv.gpu.uuid"] == EIGHT[0].uuid


@pytest.mark.parametrize(
    ("entry", "uuid", "memory"),
    [
        (MIG, MIG, 10 * GIB),
        (f"{OTHER_MIG},{MIG}", OTHER_MIG, 20 * GIB),
        (f"MIG-{EIGHT[1].uuid}/2/0", OTHER_MIG, 20 * GIB),
        # Also the beginning of the name of instance 1/10.
        (f"MIG-{EIGHT[1].uuid}/1/1", "MIG-03ac4a54-b", 10 * GIB),
        ("MIG-c6d4f1ef", MIG, 10 * GIB),
    ],
)
def test_a_mig_device(entry: str, uuid: str, memory: int, tmp_path: Path) -> None:
    """UUID and memory are the MIG device's, all else is its GPU's; several ranks can share one."""
    facts = detect(Machine(tmp_path, SPLIT), {"CUDA_VISIBLE_DEVICES": entry, "LOCAL_RANK": "3"}).value
    assert (facts["nv.gpu.uuid"], facts["nv.gpu.memory_total"]) == (uuid, memory)
    assert (facts["nv.gpu.index"], facts["nv.gpu.model"]) == (1, "NVIDIA A100-SXM4-80GB")
    assert {"nv.gpu.serial", "nv.gpu.pci_bus_id", "nv.gpu.compute_capability"} <= facts.keys()


@pytest.mark.parametrize(
    ("environ", "arguments", "named"),
    [
        ({}, "8", "the local rank 8 is not among the 8 GPUs that NVML shows"),
        ({}, "-1", "the local rank -1 is not among the 8 GPUs that NVML shows"),
        (
            {"CUDA_VISIBLE_DEVICES": "0,1", "LOCAL_RANK": "2"},
            "",
            "2 is not among the 2 entries of CUDA_VISIBLE_DEVICES",
        ),
        ({"CUDA_VISIBLE_DEVICES": "GPU-f"}, "", "'GPU-f' of CUDA_VISIBLE_DEVICES is none of the devices"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-"}, "", "'GPU-' of CUDA_VISIBLE_DEVICES fits 8 of the devices"),
        ({"CUDA_VISIBLE_DEVICES": MIG}, "", f"{MIG!r} of CUDA_VISIBLE_DEVICES is none of the devices"),
        ({"CUDA_VISIBLE_DEVICES": "9"}, "", "NVMLError_InvalidArgument"),
    ],
)
def test_no_such_gpu(environ: dict[str, str], arguments: str, named: str, tmp_path: Path) -> None:
    """Where no GPU can be said to be this process's, none is reported, and one WARNING says why."""
    said = Machine(tmp_path, EIGHT).run(f"say([detect_gpu({arguments}), detect_gpu({arguments})])", environ)
    assert said.value == [{}, {}]
    (warning,) = said.logged("WARNING")
    assert named in warning


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles", "0,0"])
def test_hidden_gpus(value: str, tmp_path: Path) -> None:
    """A process from which all GPUs are hidden has none: nothing is reported, logged or asked."""
    machine = Machine(tmp_path, EIGHT)
    said = detect(machine, {"CUDA_VISIBLE_DEVICES": value})
    assert (said.value, said.log, machine.calls()) == ({}, [], [])


@pytest.mark.parametrize("local_rank", ["0", 0.5])
def test_a_local_rank_is_an_integer(local_rank: Any) -> None:
    """A local rank that is no integer is a TypeError."""
    with pytest.raises(TypeError, match="integer"):
        detect_gpu(local_rank, {})


def test_what_is_not_supported_is_left_out(tmp_path: Path) -> None:
    """A GPU without a serial number, or an NVML that cannot tell, is normal: the rest is reported, nothing logged."""
    rules = ["fault nvmlDeviceGetMemoryInfo 3", "fault nvmlDeviceGetCudaComputeCapability 13"]
    said = detect(Machine(tmp_path, [Gpu("GPU-1", serial="")], rules))
    assert said.value.keys() == {
        *("nv.gpu.index", "nv.gpu.model", "nv.gpu.uuid", "nv.gpu.pci_bus_id", "nv.gpu.driver_version")
    }
    assert not said.log


@pytest.mark.parametrize(
    ("function", "attribute"),
    [
        ("nvmlDeviceGetIndex", "nv.gpu.index"),
        ("nvmlDeviceGetName", "nv.gpu.model"),
        ("nvmlDeviceGetUUID", "nv.gpu.uuid"),
        ("nvmlDeviceGetSerial", "nv.gpu.serial"),
        ("nvmlDeviceGetPciInfo_v3", "nv.gpu.pci_bus_id"),
        ("nvmlDeviceGetCudaComputeCapability", "nv.gpu.compute_capability"),
        ("nvmlDeviceGetMemoryInfo", "nv.gpu.memory_total"),
        ("nvmlSystemGetDriverVersion", "nv.gpu.driver_version"),
    ],
)
def test_a_failing_field_leaves_the_others(function: str, attribute: str, tmp_path: Path) -> None:
    """When a call fails, all other fields are reported, and one WARNING names the field and NVML's error."""
    machine = Machine(tmp_path, EIGHT, [f"fault {function} 4"])
    said = machine.run("say([detect_gpu(), detect_gpu()])")
    assert said.value[0] == said.value[1]
    assert said.value[0].keys() == {n for n in RESOURCE_FIELDS if n.startswith("nv.gpu.")} - {attribute}
    (warning,) = said.logged("WARNING")
    assert f"{attribute} (NVMLError_NoPermission(4))" in warning


def test_a_lost_gpu(tmp_path: Path) -> None:
    """Of a GPU that fell off the bus nothing is reported, with one WARNING; those beside it are found, also by name."""
    machine = Machine(tmp_path, EIGHT, ["fault nvmlDeviceGetHandleByIndex_v2 15 0"])
    lost = detect(machine)
    assert lost.value == {}
    assert "NVMLError_GpuIsLost(15)" in " ".join(lost.logged("WARNING"))
    named = detect(machine, {"CUDA_VISIBLE_DEVICES": EIGHT[1].uuid})
    assert (named.value["nv.gpu.index"], named.log) == (1, [])


@pytest.mark.parametrize(
    ("code", "level", "name"),
    [
        (9, "DEBUG", "DriverNotLoaded"),
        (12, "DEBUG", "LibraryNotFound"),
        (4, "WARNING", "NoPermission"),
        (15, "WARNING", "GpuIsLost"),
        (18, "WARNING", "LibRmVersionMismatch"),
        (999, "WARNING", "Unknown"),
    ],
)
def test_nvml_does_not_start(code: int, level: str, name: str, tmp_path: Path) -> None:
    """When NVML cannot start there is nothing to report, and one line: at DEBUG where there is just no driver."""
    said = Machine(tmp_path, EIGHT, [f"fault nvmlInit {code}"]).run("say([detect_gpu(), detect_gpu()])")
    assert said.value == [{}, {}]
    assert said.logged(level) == [f"the GPU is not described: NVML failed: NVMLError_{name}({code})"]
    assert len(said.log) == 1


def test_no_gpus(tmp_path: Path) -> None:
    """A machine whose driver shows no GPU: nothing to report, one line."""
    said = detect(Machine(tmp_path))
    assert said.value == {}
    assert said.logged("WARNING") == [
        "the GPU is not described: the local rank 0 is not among the 0 GPUs that NVML shows"
    ]


def test_no_library(tmp_path: Path) -> None:
    """Without the driver's library: nothing to report, one line at DEBUG."""
    said = detect(Machine(tmp_path, driver=False))
    assert said.value == {}
    assert len(said.logged("DEBUG")) == len(said.log) == 1


def test_not_installed(tmp_path: Path) -> None:
    """Without nvidia-ml-py: nothing to report, and a line at DEBUG says what to install."""
    said = Machine(tmp_path, EIGHT).run("sys.modules['pynvml'] = None\nsay([detect_gpu(), visible_gpu_count()])")
    assert said.value == [{}, 8], "the count takes the driver's library alone"
    assert not said.logged("WARNING")
    assert "pip install 'nemo-lens-sdk[gpu]'" in said.log[0]


def impostor(folder: Path, code: str) -> dict[str, str]:
    """Put another `pynvml` before the real one; `real()` in it loads that one into it."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    folder = folder / "impostor"
    folder.mkdir()
    real = f"def real():\n    from pathlib import Path\n    exec(Path({spec.origin!r}).read_text(), globals())\n"
    (folder / "pynvml.py").write_text(f"import warnings\n{real}{code}")
    return {"PYTHONPATH": str(folder)}


DEPRECATED = "warnings.warn('The pynvml package is deprecated', FutureWarning)\nreal()\n"


def test_a_package_that_warns(tmp_path: Path) -> None:
    """A `pynvml` that announces its own end still answers."""
    machine = Machine(tmp_path, EIGHT)
    environ = impostor(tmp_path, DEPRECATED)
    said = machine.run("say(len(detect_gpu()))", environ, ("-W", "ignore"))
    assert said.value == 8


@pytest.mark.parametrize("code", [DEPRECATED, "raise OSError('half installed')", "answer = 42", "import no_such_thing"])
def test_a_package_that_fails(code: str, tmp_path: Path) -> None:
    """A `pynvml` whose warning is made an error, that cannot be imported, or is something else, does no harm."""
    said = Machine(tmp_path, EIGHT).run("say([detect_gpu(), detect_gpu()])", impostor(tmp_path, code))
    assert said.value == [{}, {}]
    assert len(said.log) == 1


def test_a_package_that_speaks_bytes(tmp_path: Path) -> None:
    """What the releases of `pynvml` of long ago return as bytes is reported as text, and names are found."""
    code = """real()
def to_bytes(function):
    return lambda *args: function(*args).encode()
nvmlDeviceGetUUID, nvmlDeviceGetName = to_bytes(nvmlDeviceGetUUID), to_bytes(nvmlDeviceGetName)
"""
    environ = {**impostor(tmp_path, code), "CUDA_VISIBLE_DEVICES": "GPU-3"}
    facts = detect(Machine(tmp_path, EIGHT), environ).value
    assert (facts["nv.gpu.uuid"], facts["nv.gpu.model"]) == (EIGHT[3].uuid, EIGHT[3].name)


def test_the_users_own_nvml_goes_on(tmp_path: Path) -> None:
    """Detection closes what it opened and nothing else: the application's own NVML session stays open."""
    machine = Machine(tmp_path, EIGHT)
    code = """
import pynvml
pynvml.nvmlInit()
detect_gpu()
visible_gpu_count()
say(pynvml.nvmlDeviceGetCount())
pynvml.nvmlShutdown()
"""
    assert machine.run(code).value == 8
    calls = machine.calls()
    assert calls.count("nvmlInit") == calls.count("nvmlShutdown") == 3


def test_through_opentelemetry(tmp_path: Path) -> None:
    """Named to any application's OpenTelemetry, which runs its detectors in threads of a pool, they answer as well."""
    code = "from opentelemetry.sdk.resources import Resource\nsay(dict(Resource.create().attributes))"
    environ = {"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "nemo_lens_gpu,nemo_lens_local", "LOCAL_RANK": "2"}
    attributes = Machine(tmp_path, EIGHT).run(code, environ).value
    assert (attributes["nv.gpu.uuid"], attributes["host.gpu.count"]) == (EIGHT[2].uuid, 8)
