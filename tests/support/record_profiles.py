"""Records the profiles in ``tests/timeline/profiles``, with spans of the same run: ``record_profiles.py FOLDER``.

Takes torch, scikit-learn and the wheels. What is recorded is as torch writes it, but for the names of the machine and
of its files.

- ``kineto.json.gz``, ``python_export.json``: by torch's two writers, of one process: two steps on the main thread and
  one in a thread with spans of its own.
- ``ddp-rank0.pt.trace.json.gz``, ``ddp-rank1.pt.trace.json.gz``: of ``docs/examples/train_ddp.py`` on two gloo ranks,
  shorter by a larger batch.
"""

from __future__ import annotations

import gzip
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HOST = "gpu-a1"
_OF_ONE_PROCESS = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29517",
}
# Before nemo_lens and torch are imported.
os.environ.update(
    NEMO_LENS_ENABLED="1",
    NEMO_LENS_EXPORTER="file",
    NEMO_LENS_RUN_ID="recorded",
    GLOO_SOCKET_IFNAME="lo",
    OMP_NUM_THREADS="1",
    **_OF_ONE_PROCESS,
)

import torch  # noqa: E402 - the environment comes first
from torch import distributed, nn  # noqa: E402
from torch._C._profiler import _ExperimentalConfig  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402

from nemo_lens.api import setup_telemetry, span_cm  # noqa: E402

MODEL = nn.Linear(8, 4)


def step(index: int) -> None:
    """Train a little; the record_function stands for the step in the profile."""
    thread = threading.current_thread()
    where = {} if thread is threading.main_thread() else {"thread.id": thread.native_id, "thread.name": thread.name}
    with span_cm("step", **{"dl.iteration": index, **where}), record_function(f"record_step_{index}"):
        MODEL(torch.ones(2, 8)).sum().backward()


def recorded() -> profile:
    """Return a profile of all threads."""
    everything = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=everything) as profiler:
        step(0)
        step(1)
        thread = threading.Thread(target=step, args=(2,), name="evaluation")
        thread.start()
        thread.join()
    return profiler


def record_writers(scratch: Path) -> None:
    """Record with torch's own writer before torch.distributed, and with its Python writer after."""
    step(-1)  # what torch does the first time
    with setup_telemetry(resource_attributes={"nv.dl.rank": 0}):
        recorded().export_chrome_trace(str(scratch / "kineto.json"))
        distributed.init_process_group("gloo")
        recorded().export_chrome_trace(str(scratch / "python_export.json"), use_python_export=True)
        distributed.destroy_process_group()


def record_example(scratch: Path) -> None:
    """Run the example on two ranks, with three steps in one epoch."""
    source = (Path(__file__).resolve().parents[2] / "docs" / "examples" / "train_ddp.py").read_text(encoding="utf-8")
    shorter = source.replace("EPOCHS, BATCH = 2, 64", "EPOCHS, BATCH = 1, 256")
    assert shorter != source
    program = scratch / "train_ddp.py"
    program.write_text(shorter, encoding="utf-8")
    environ = {key: value for key, value in os.environ.items() if key not in _OF_ONE_PROCESS}
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    environ["PROFILE"] = str(scratch)
    subprocess.run([sys.executable, *torchrun, str(program)], cwd=scratch, env=environ, check=True)


def keep(scratch: Path, folder: Path, prefix: str = "") -> None:
    """Take what was recorded into the project, without the names of this machine."""
    spans = []
    for path in sorted(item for item in scratch.rglob("*.json*") if item.is_file()):
        text = path.read_text(encoding="utf-8").replace(f"{scratch}/", "").replace(str(scratch), "")
        text = re.sub(rf"\b{re.escape(socket.gethostname())}(?![a-zA-Z0-9])", HOST, text)
        text = re.sub(r'"ERROR": \[.*?\],', "", text)
        if path.suffix == ".jsonl":
            spans.append(text)
        elif path.name == "python_export.json":
            (folder / path.name).write_text(text, encoding="utf-8")
        elif path.name == "kineto.json":
            (folder / "kineto.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            rank = re.search(r'"rank": (\d+)', text)
            assert rank is not None
            compressed = gzip.compress(text.encode(), mtime=0)
            (folder / f"{prefix}rank{rank[1]}.pt.trace.json.gz").write_bytes(compressed)
    (folder / f"{prefix}spans.jsonl").write_text("".join(spans), encoding="utf-8")


def main(folder: Path) -> None:
    """Record everything."""
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        record_writers(Path(scratch))
        keep(Path(scratch), folder)
        os.chdir(folder)
    with tempfile.TemporaryDirectory() as scratch:
        record_example(Path(scratch))
        keep(Path(scratch), folder, "ddp-")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
