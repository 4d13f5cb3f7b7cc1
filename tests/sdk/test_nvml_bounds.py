"""A driver that is slow or hangs, in the real ``pynvml`` over a library that does: detection does not wait for it."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import pytest

from nemo_lens.sdk.resources.gpu import NVML_WITHIN_S as GPU_WITHIN_S
from nemo_lens.sdk.resources.gpu_count import NVML_WITHIN_S as COUNT_WITHIN_S
from support.nvidia import Machine, gpus

EIGHT = gpus(8)
# What starting Python and importing may take on a busy machine; a call that hangs never returns.
AMPLE_S = 15.0
TIMED = """
def timed(call):
    start = time.monotonic()
    found = call()
    return [found, time.monotonic() - start]
"""


def test_the_bounds_add_up() -> None:
    """Counting leaves time for the rest of the 200 ms that detection may take."""
    assert COUNT_WITHIN_S <= 0.15


def test_a_slow_driver(tmp_path: Path) -> None:
    """With 50 ms for every call, as without persistence mode, all of the GPU is still described."""
    said = Machine(tmp_path, EIGHT, ["delay * 50"]).run("say(detect_gpu())", {"CUDA_VISIBLE_DEVICES": "4"})
    assert (len(said.value), said.value["nv.gpu.index"]) == (8, 4)
    assert not said.log


def test_a_slow_start_is_waited_for(tmp_path: Path) -> None:
    """A driver too slow for the count, which was left behind, still gets the time that describing the GPU allows."""
    said = Machine(tmp_path, EIGHT, ["delay nvmlInit 400"]).run("say(visible_gpu_count({}, '/x'))\nsay(detect_gpu())")
    count, facts = said.values
    assert count is None
    assert facts["nv.gpu.uuid"] == EIGHT[0].uuid


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount_v2"])
def test_a_hanging_count(function: str, tmp_path: Path) -> None:
    """When NVML hangs, detection goes on without it after its limit, once: later calls do not wait."""
    code = f"{TIMED}\nsay([timed(detect_resource) for _ in range(4)])"
    said = Machine(tmp_path, EIGHT, [f"hang {function}"]).run(code)
    (first, waited), *later = said.value
    assert all(found == first for found, _ in later)
    assert {"host.name", "process.pid"} <= first.keys()
    assert waited >= COUNT_WITHIN_S > min(seconds for _, seconds in later)
    assert not said.logged("WARNING")
    assert "NVML did not answer in time" in said.logged("DEBUG")[0]


def test_a_hanging_count_falls_back(tmp_path: Path) -> None:
    """When NVML hangs, the GPUs that the driver lists are counted."""
    for number in range(3):
        (tmp_path / f"proc/driver/nvidia/gpus/{number}").mkdir(parents=True)
    machine = Machine(tmp_path, EIGHT, ["hang nvmlInit"])
    assert machine.run(f"say(visible_gpu_count({{}}, {str(tmp_path)!r}))").value == 3


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"])
def test_a_hanging_description(function: str, tmp_path: Path) -> None:
    """When NVML hangs, no GPU is described after the limit, with one WARNING, and it is not asked again."""
    machine = Machine(tmp_path, EIGHT, [f"hang {function}"])
    said = machine.run(f"{TIMED}\nsay([timed(detect_gpu), timed(detect_gpu), timed(visible_gpu_count)])")
    (first, waited), (again, not_waited), (_, counted) = said.value
    assert first == again == {}
    assert waited >= GPU_WITHIN_S > not_waited + counted
    assert "NVML did not answer in time" in said.logged("WARNING")[0]
    assert machine.calls().count("nvmlInit") == 1


def test_a_hanging_field(tmp_path: Path) -> None:
    """What NVML said before it hung is reported, with one WARNING."""
    said = Machine(tmp_path, EIGHT, ["hang nvmlDeviceGetSerial"]).run("say(detect_gpu())")
    assert said.value == {"nv.gpu.index": 0, "nv.gpu.model": EIGHT[0].name, "nv.gpu.uuid": EIGHT[0].uuid}
    (warning,) = said.logged("WARNING")
    assert warning.startswith("the GPU is not described further: NVML did not answer in time")


def test_a_hanging_shutdown(tmp_path: Path) -> None:
    """An answer is not lost when NVML hangs while it is closed."""
    said = Machine(tmp_path, EIGHT, ["hang nvmlShutdown"]).run("say(detect_gpu())")
    assert said.value["nv.gpu.uuid"] == EIGHT[0].uuid


def test_a_failing_shutdown(tmp_path: Path) -> None:
    """An answer is not lost when NVML fails while it is closed."""
    said = Machine(tmp_path, EIGHT, ["fault nvmlShutdown 999"]).run("say([visible_gpu_count(), len(detect_gpu())])")
    assert said.value == [8, 8]


def test_the_process_ends(tmp_path: Path) -> None:
    """A process with a call that hangs ends at once, with its own exit code, and its exit handlers run."""
    code = """
import atexit
atexit.register(say, "exit handler")
detect_resource()
say("end")
"""
    said = Machine(tmp_path, EIGHT, ["hang nvmlInit"]).run(code)
    assert said.values == ["end", "exit handler"]
    assert said.seconds < AMPLE_S


def test_at_exit(tmp_path: Path) -> None:
    """In an exit handler, where some releases of Python start no thread any more, detection raises nothing either."""
    said = Machine(tmp_path, EIGHT).run(
        "import atexit\natexit.register(lambda: say([detect_resource(), detect_gpu()]))"
    )
    (resource, gpu) = said.value
    assert "host.name" in resource
    assert len(gpu) in (0, 8)


FORK = """
import signal
def child(what):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        what()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_child_forked_after_a_hang(tmp_path: Path) -> None:
    """A child of a process whose NVML hangs does not ask it: locks of the library are held for ever. All else works."""
    code = f"{TIMED}{FORK}\ndetect_resource()\nchild(lambda: say([timed(detect_resource), timed(detect_gpu)]))"
    machine = Machine(tmp_path, EIGHT, ["hang nvmlInit"])
    said = machine.run(code)
    (resource, resource_s), (gpu, gpu_s) = said.value
    assert "host.name" in resource
    assert gpu == {}
    assert resource_s + gpu_s < GPU_WITHIN_S
    assert machine.calls().count("nvmlInit") == 1
    assert "NVML was being asked when this process was forked" in " ".join(said.logged("WARNING"))


def test_a_child_forked_after_an_answer(tmp_path: Path) -> None:
    """A child of a process whose NVML answered asks it again, and is answered."""
    code = f"{FORK}\nsay(len(detect_gpu()))\nchild(lambda: say([visible_gpu_count(), len(detect_gpu())]))"
    said = Machine(tmp_path, EIGHT).run(code)
    assert said.values == [8, [8, 8]]
    assert not said.log


def test_threads_ask_at_once(tmp_path: Path) -> None:
    """Threads that ask at the same time are all answered, and NVML is closed as often as it was opened."""
    machine = Machine(tmp_path, EIGHT, ["delay * 2"])
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    say([facts.get("nv.gpu.index") for facts in pool.map(detect_gpu, range(8))])
"""
    assert machine.run(code).value == list(range(8))
    assert machine.calls().count("nvmlInit") == machine.calls().count("nvmlShutdown") == 8


def test_nvidia_smi_is_not_run(tmp_path: Path) -> None:
    """A hanging `nvidia-smi` on PATH is never started, and detection takes no longer than without it."""
    marker = tmp_path / "started"
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho started >> {marker}\nwhile :; do sleep 1000; done\n")
    program.chmod(0o755)
    path = os.environ["PATH"]
    machine = Machine(tmp_path, driver=False)
    seconds: dict[str, list[float]] = {path: [], f"{program.parent}:{path}": []}
    for _ in range(3):
        for value, measured in seconds.items():
            said = machine.run(f"{TIMED}\nsay([timed(detect_resource)[1], detect_gpu()])", {"PATH": value})
            measured.append(said.value[0])
    without, beside = (statistics.median(measured) for measured in seconds.values())
    assert not marker.exists()
    # 50 ms for what else the machine does: a program that hangs costs more than any timeout for it.
    assert beside < 3 * without + 0.05
