"""How many GPUs a process sees: ``CUDA_VISIBLE_DEVICES`` as CUDA reads it, else NVML, else the driver's own list."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_lens.sdk.resources import detect_local
from nemo_lens.sdk.resources.gpu_count import count_and_origin, visible_gpu_count
from support.nvidia import Machine, gpus

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
OTHER = "GPU-a1b2c3d4-d72c-4106-c12f-20bd9faed9f6"
MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
OTHER_MIG = "MIG-03ac4a54-6e3c-5c2f-b3ae-1b6d1a0d1a3c"
OLD_MIG = f"MIG-{UUID}/1/0"

VISIBLE = [
    ("", 0),
    (" ", 0),
    ("0", 1),
    ("0,1", 2),
    ("7,3,5", 3),
    ("-1", 0),
    ("-2", 0),
    ("NoDevFiles", 0),
    ("none", 0),
    ("0,-1,1", 1),
    ("0,1,-1", 2),
    ("0,0", 0),
    ("0,1,0", 0),
    ("0,-1,0", 1),
    ("0,,1", 1),
    (",0", 0),
    ("0,1,", 2),
    # As strtol reads numbers.
    (" 0 , 1 ", 2),
    ("2, +3, -0, 5", 4),
    ("1gpu2,2ampere", 2),
    ("0x1,0", 0),
    ("one,two,3", 0),
    ("4,3,two,1", 2),
    ("+,-", 0),
    ("00,0", 0),
    ("0,GPU-8932f937", 1),
    ("٣,4", 0),
    # More than there is on any machine, and more digits than Python converts.
    (",".join(map(str, range(100))), 100),
    ("9" * 5000, 1),
    (UUID, 1),
    (f"{UUID},{OTHER}", 2),
    (f"{UUID},{UUID}", 0),
    (f"{UUID},{OTHER},{UUID}", 0),
    ("GPU-8932f937", 1),
    ("GPU-8932f937,GPU-a1b2c3d4", 2),
    ("GPU-8932f937,GPU-8932f937", 0),
    ("GPU-8932f937, 2", 1),
    (f"{UUID},1", 1),
    (f"{UUID},{MIG}", 1),
    (f"{UUID},-1,{OTHER}", 1),
    ("gpu-8932f937", 0),
    (MIG, 1),
    (f"{MIG},{OTHER_MIG}", 1),
    (f"{MIG},{MIG}", 0),
    (OLD_MIG, 1),
    (f"{OLD_MIG},MIG-{UUID}/2/0", 1),
    (f"{OLD_MIG},{UUID}", 1),
    (f"{MIG},0", 1),
]


def driver_lists(root: Path, count: int) -> Path:
    """Lay out what the kernel's driver shows of ``count`` GPUs, as under ``/proc``."""
    folder = root / "proc/driver/nvidia/gpus"
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"0000:{number:02x}:00.0").mkdir()
    return root


@pytest.mark.parametrize(("value", "count"), VISIBLE)
def test_visible_devices_as_cuda_reads_them(value: str, count: int, tmp_path: Path) -> None:
    """A set CUDA_VISIBLE_DEVICES, also an empty one, says the count, whatever hardware is there."""
    environ = {"CUDA_VISIBLE_DEVICES": value}
    assert visible_gpu_count(environ, driver_lists(tmp_path, 3)) == count
    assert detect_local(environ)["host.gpu.count"] == count


def test_visible_devices_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an environment given, this process's own is read."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2,3")
    assert visible_gpu_count() == 3


@pytest.mark.parametrize("count", [0, 1, 8])
def test_unset_asks_nvml(count: int, tmp_path: Path) -> None:
    """Without CUDA_VISIBLE_DEVICES the count is NVML's, also when that is 0, whatever the driver's folder lists."""
    machine = Machine(tmp_path, gpus(count))
    said = machine.run(
        f"say(visible_gpu_count({{}}, {str(driver_lists(tmp_path, 3))!r}))\nsay('pynvml' in sys.modules)"
    )
    assert said.values == [count, False], "pynvml is not needed for that, and its import is not cheap"
    assert machine.calls() == ["nvmlInit", "nvmlDeviceGetCount_v2", "nvmlShutdown"]


def test_set_asks_nobody(tmp_path: Path) -> None:
    """With CUDA_VISIBLE_DEVICES set, NVML is not asked."""
    machine = Machine(tmp_path, gpus(8))
    assert machine.run("say(visible_gpu_count())", {"CUDA_VISIBLE_DEVICES": "0,1"}).value == 2
    assert machine.calls() == []


@pytest.mark.parametrize("code", [3, 4, 9, 15, 18, 999])
@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount_v2"])
def test_failing_nvml_falls_back(function: str, code: int, tmp_path: Path) -> None:
    """When NVML fails, whatever with, the GPUs that the driver lists are counted, with one line at DEBUG."""
    machine = Machine(tmp_path, gpus(8), [f"fault {function} {code}"])
    said = machine.run(f"say([visible_gpu_count({{}}, {str(driver_lists(tmp_path, 2))!r}) for _ in range(2)])")
    assert said.value == [2, 2]
    assert len(said.log) == 1
    assert said.logged("DEBUG")[0].startswith("the GPUs are counted without NVML: NVML failed: ")
    paired = "nvmlShutdown" in machine.calls()
    assert paired is (function != "nvmlInit"), "every nvmlInit that succeeded has its nvmlShutdown"


@pytest.mark.parametrize("count", [0, 1, 4])
def test_driver_lists_gpus(count: int, tmp_path: Path) -> None:
    """Without NVML the folders of /proc/driver/nvidia/gpus are counted; a driver that lists none means 0."""
    machine = Machine(tmp_path, driver=False)
    assert machine.run(f"say(visible_gpu_count({{}}, {str(driver_lists(tmp_path, count))!r}))").value == count


def test_nothing_says(tmp_path: Path) -> None:
    """Where neither NVML nor a driver is there, no count is given rather than 0: there may be others' accelerators."""
    machine = Machine(tmp_path, driver=False)
    said = machine.run(f"say(visible_gpu_count({{}}, {str(tmp_path)!r}))")
    assert said.value is None
    assert not said.logged("WARNING")


@pytest.mark.skipif(Path("/proc/driver/nvidia/gpus").exists(), reason="this machine has an NVIDIA driver")
def test_unknown_is_not_sent(tmp_path: Path) -> None:
    """An unknown count is left out of the resource."""
    machine = Machine(tmp_path, driver=False)
    assert "host.gpu.count" not in machine.run("say(detect_resource())").value


def test_what_says_so(tmp_path: Path) -> None:
    """Beside the count a person learns what says it: the variable, NVML, the driver's folder; or why nothing does."""
    assert count_and_origin({"CUDA_VISIBLE_DEVICES": "0,-1"}) == (1, "CUDA_VISIBLE_DEVICES=0,-1")
    code = "from nemo_lens.sdk.resources.gpu_count import count_and_origin\nsay(count_and_origin({}, ROOT))"
    with_gpus, without = tmp_path / "with", tmp_path / "without"
    with_gpus.mkdir()
    without.mkdir()
    assert Machine(with_gpus, gpus(2)).run(code.replace("ROOT", "'/'")).value == [2, "NVML"]
    bare = Machine(without, driver=False)
    assert bare.run(code.replace("ROOT", repr(str(without)))).value[1].startswith("nothing says: there is no NVIDIA")
    count, origin = bare.run(code.replace("ROOT", repr(str(driver_lists(without, 1))))).value
    assert (count, origin.split(" ")[0]) == (1, f"{without}/proc/driver/nvidia/gpus")
