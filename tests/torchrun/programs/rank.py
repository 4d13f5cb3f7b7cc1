"""A training script as torchrun starts it, one process a rank: it sets telemetry up and says nothing of its rank.

usage: torchrun ... rank.py SCENARIO [ARGUMENTS]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

warnings.simplefilter("error")

from nemo_lens.api import SpanRegistry, managed_span, setup_telemetry, span_cm  # noqa: E402 - after the filter
from nemo_lens.sdk.resources import derive_job_uuid, derive_run_uuid  # noqa: E402 - after the filter

SpanRegistry.register("training", ["step", "detail"], presets={"default": ["step"]})


def say(**facts: Any) -> None:
    """Tell the test something: one line, in one write, so that the ranks do not mix theirs."""
    os.write(1, f"{json.dumps(facts)}\n".encode())


def start(**resource_attributes: Any) -> Any:
    """Set telemetry up from the environment, with what the program itself knows; tell the test what came of it."""
    handle = setup_telemetry(resource_attributes=resource_attributes)
    run_id = handle.resource_attributes["nemo.run.id"]
    say(
        pid=os.getpid(),
        environ={name: value for name, value in os.environ.items() if "RANK" in name or "ELASTIC" in name},
        world_size=int(os.environ["WORLD_SIZE"]),
        resource=dict(handle.resource_attributes),
        job_uuid=derive_job_uuid(),
        run_uuid=derive_run_uuid(run_id=run_id),
    )
    return handle


def train() -> None:
    """One run with a step inside, and a span that only the preset's detail would open."""
    with start(), span_cm("train"), managed_span("step", "step"), managed_span("detail", "detail"):
        pass


def odd_ranks_say_theirs() -> None:
    """Ranks 1, 3, ... give a rank of their own making; the others leave it to what the environment says."""
    rank = int(os.environ["RANK"])
    with start(**{"nv.dl.rank": rank + 100} if rank % 2 else {}), span_cm("train"):
        pass


def gloo() -> None:
    """A rank that trains with torch: all ranks add theirs up inside a span."""
    with start() as handle, span_cm("train"):
        warnings.resetwarnings()  # torch's own are not what is tested
        import torch
        from torch import distributed

        distributed.init_process_group("gloo")
        with managed_span("step", "all_reduce") as span:
            total = torch.tensor(float(handle.resource_attributes["nv.dl.rank"]))
            distributed.all_reduce(total)
            span.set_attributes({"total": total.item(), "rank": distributed.get_rank()})
        distributed.destroy_process_group()


def fails_once(folder: str) -> None:
    """Rank 1 fails in the first attempt, when all ranks are in their step; the others wait for torchrun to end them."""
    attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], int(os.environ["RANK"])
    handle = start()
    handle.install_sigterm_handler()
    with span_cm("train", attempt=attempt), managed_span("step", "step", attempt=attempt):
        (Path(folder) / f"{attempt}-{rank}").touch()
        if attempt == "0":
            if rank != 1:
                while True:
                    signal.pause()
            deadline = time.monotonic() + 30
            while len(list(Path(folder).glob("0-*"))) < int(os.environ["WORLD_SIZE"]) and time.monotonic() < deadline:
                time.sleep(0.02)
            raise RuntimeError("loss is not finite")
    handle.shutdown()


def waits() -> None:
    """A rank in the middle of a step when the job is evicted."""
    start().install_sigterm_handler()
    with span_cm("train"), managed_span("step", "step"):
        say(ready=os.environ["RANK"])
        while True:
            signal.pause()


def stays_away(folder: str) -> None:
    """Rank 0 waits in a collective for rank 1, which never comes and, other than rank 0, ignores SIGTERM.

    Rank 1 ends when rank 0 has: an end before that would end the collective, too.
    """
    warnings.resetwarnings()  # torch's own are not what is tested
    import torch
    from torch import distributed

    rank, pid_of_0 = os.environ["RANK"], Path(folder) / "pid-0"
    if rank == "1":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start().install_sigterm_handler()
    distributed.init_process_group("gloo")
    with span_cm("train"):
        if rank == "0":
            pid_of_0.write_text(str(os.getpid()), encoding="utf-8")
            threading.Timer(0.5, lambda: say(ready=rank)).start()  # about when it is in there
            with managed_span("step", "all_reduce"):
                distributed.all_reduce(torch.ones(4))
        else:
            say(ready=rank)
            while not pid_of_0.exists() or _lives(int(pid_of_0.read_text(encoding="utf-8") or os.getpid())):
                time.sleep(0.05)


def _lives(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    try:
        return state.read_text(encoding="utf-8").rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    scenario: Callable[..., None] = globals()[sys.argv[1]]
    scenario(*sys.argv[2:])
