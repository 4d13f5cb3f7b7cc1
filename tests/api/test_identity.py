"""Run ids and UUIDs that the processes of a run agree on, and when a process was started."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest

from nemo_lens.api import _diagnostics
from nemo_lens.api.identity import derive_job_uuid, derive_run_uuid, ensure_run_id, linux_process_create_time

ON_LINUX = sys.platform == "linux"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    _diagnostics.forget_reported()
    yield
    _diagnostics.forget_reported()


# The sources of the run id, the strongest first.
SOURCES = {
    "NEMO_LENS_RUN_ID": "variable",
    "OTEL_RESOURCE_ATTRIBUTES": "a=b,nemo.run.id=inherited",
    "SLURM_JOB_ID": "4711",
    "TORCHELASTIC_RUN_ID": "elastic",
}
IDS = ["variable", "inherited", "4711", "elastic"]


@pytest.mark.parametrize("strongest", range(len(SOURCES)))
def test_the_strongest_source_names_the_run(strongest: int) -> None:
    """Each source beats the ones below it, and one given explicitly beats all; blank ones do not count."""
    names = list(SOURCES)
    environ = {name: SOURCES[name] if names.index(name) >= strongest else "  " for name in names}
    assert ensure_run_id("", environ) == IDS[strongest]
    assert ensure_run_id("  ", environ) == IDS[strongest]
    assert ensure_run_id(" explicit ", environ) == "explicit"


@pytest.mark.parametrize("elastic", ["none", "None", " NONE ", "", None])
def test_the_default_of_torchrun_names_no_run(elastic: str | None) -> None:
    """``none`` is what every torchrun without an id says: a random id is better."""
    run_id = ensure_run_id("", {} if elastic is None else {"TORCHELASTIC_RUN_ID": elastic})
    assert len(run_id) == 12
    assert int(run_id, 16) >= 0


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mapping, ``os.environ`` is read."""
    for name in SOURCES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "alpha")
    assert ensure_run_id() == "4711"
    assert derive_job_uuid() == derive_job_uuid({"SLURM_JOB_ID": "4711", "SLURM_CLUSTER_NAME": "alpha"})
    assert derive_run_uuid() == derive_run_uuid({"SLURM_JOB_ID": "4711", "SLURM_CLUSTER_NAME": "alpha"})


def test_a_random_run_id_is_one_per_process_and_unlike_others() -> None:
    """It stays the same in this process and, on Linux, its forks; another process has another, whatever its seeds."""
    program = """
import os, random, sys
random.seed(1)
from nemo_lens.api.identity import ensure_run_id
if hasattr(os, "fork"):
    if (pid := os.fork()) == 0:
        print(ensure_run_id("", {}), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
print(ensure_run_id("", {}), ensure_run_id("", {}), flush=True)
"""
    outputs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert [len(set(output)) for output in outputs] == [1, 1]
    assert outputs[0][0] != outputs[1][0]


@pytest.mark.parametrize(("world_size", "warnings"), [("8", 1), (" 2 ", 1), ("1", 0), ("01", 0), ("", 0), ("x", 0)])
def test_ranks_that_make_up_their_own_id_are_warned(
    world_size: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Only with several ranks and nothing common to them: one WARNING that names the variable to set."""
    for _ in range(2):
        ensure_run_id("", {"WORLD_SIZE": world_size})
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * warnings
    assert ("NEMO_LENS_RUN_ID" in caplog.text) is bool(warnings)


def test_a_known_run_id_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """With a common id the world size does not matter."""
    ensure_run_id("", {"WORLD_SIZE": "8", "SLURM_JOB_ID": "1"})
    assert not caplog.records


def uuid5(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


PLAIN = {"SLURM_CLUSTER_NAME": "alpha", "SLURM_JOB_ID": "11"}
# The last task of an array, whose SLURM_JOB_ID equals the array's, and another one.
LAST_TASK = {**PLAIN, "SLURM_ARRAY_JOB_ID": "11", "SLURM_ARRAY_TASK_ID": "3", "SLURM_RESTART_COUNT": "2"}
OTHER_TASK = {**LAST_TASK, "SLURM_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"}


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "nemo.lens.job/nocluster/nojob"),
        ({"SLURM_CLUSTER_NAME": "alpha"}, "nemo.lens.job/alpha/nojob"),
        ({"SLURM_JOB_ID": "11", "SLURM_CLUSTER_NAME": " "}, "nemo.lens.job/nocluster/11"),
        (PLAIN, "nemo.lens.job/alpha/11"),
        ({**PLAIN, "SLURM_RESTART_COUNT": "2"}, "nemo.lens.job/alpha/11"),
        (LAST_TASK, "nemo.lens.job/alpha/11"),
        (OTHER_TASK, "nemo.lens.job/alpha/11"),
    ],
)
def test_the_job_uuid_is_one_for_the_whole_job(environ: dict[str, str], name: str) -> None:
    """Restarts and array elements share it, and anyone can derive it: it is UUID 5 over a documented name."""
    assert derive_job_uuid(environ) == uuid5(name)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (PLAIN, "nemo.lens.run/alpha/11/sr0"),
        ({**PLAIN, "SLURM_RESTART_COUNT": "2"}, "nemo.lens.run/alpha/11/sr2"),
        ({**PLAIN, "TORCHELASTIC_RESTART_COUNT": "1"}, "nemo.lens.run/alpha/11/sr0/te1"),
        ({"SLURM_JOB_ID": "11"}, "nemo.lens.run/nocluster/11/sr0"),
        (LAST_TASK, "nemo.lens.run/alpha/11"),
        ({**OTHER_TASK, "TORCHELASTIC_RESTART_COUNT": "1"}, "nemo.lens.run/alpha/11/te1"),
        ({"TORCHELASTIC_RUN_ID": "e"}, "nemo.lens.run/local/e/te0"),
        ({"TORCHELASTIC_RUN_ID": "e", "TORCHELASTIC_RESTART_COUNT": "3"}, "nemo.lens.run/local/e/te3"),
    ],
)
def test_the_run_uuid_is_one_for_the_attempt(environ: dict[str, str], name: str) -> None:
    """A requeue and an elastic restart make another one, the ranks of one attempt agree."""
    assert derive_run_uuid(environ) == uuid5(name)


def test_a_run_id_counts_outside_slurm_only() -> None:
    """There it beats torchelastic's; under SLURM the job says more than a name."""
    elastic = {"TORCHELASTIC_RUN_ID": "e"}
    assert derive_run_uuid(elastic, run_id=" mine ") == uuid5("nemo.lens.run/local/mine/te0")
    assert derive_run_uuid(PLAIN, run_id="mine") == derive_run_uuid(PLAIN)


@pytest.mark.parametrize("environ", [{}, {"TORCHELASTIC_RUN_ID": "None"}, {"SLURM_CLUSTER_NAME": "alpha"}])
def test_without_anything_common_there_is_no_run_uuid(environ: dict[str, str]) -> None:
    """A UUID that different runs would share is worse than none."""
    assert derive_run_uuid(environ) is None
    assert derive_run_uuid(environ, run_id=" ") is None


@pytest.mark.skipif(not ON_LINUX, reason="/proc is Linux")
def test_the_create_time_of_a_process_is_when_it_was_started() -> None:
    """Seconds since the epoch, for this process and others, whatever their name holds, right to two seconds."""
    program = """
with open("/proc/self/comm", "wb") as comm:
    comm.write(b"a) S (1 \\xff)")
print(open("/proc/self/comm", "rb").read(), flush=True)
input()
"""
    before = time.time()
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert b"a) S (1" in child.stdout.readline()
        created = linux_process_create_time(child.pid)
        own = linux_process_create_time()
        child.communicate(b"\n")
    assert created is not None
    assert own is not None
    assert before - 2 <= created <= time.time() + 2
    assert own < created
    assert linux_process_create_time(os.getpid()) == own


@pytest.mark.parametrize("pid", [0, -1, 2**40, True, "1", "../1", 1.0])
def test_a_process_that_cannot_be_read_has_no_create_time(pid: int) -> None:
    """What is no process, or gone, gives None."""
    assert linux_process_create_time(pid) is None


def test_bytes_that_are_no_utf_8_give_ids_all_the_same() -> None:
    """A variable of any bytes neither raises nor gives an id that cannot be encoded."""
    odd = {"SLURM_JOB_ID": "7", "SLURM_CLUSTER_NAME": "c\udcff"}
    assert derive_job_uuid(odd) == derive_job_uuid({**odd, "SLURM_CLUSTER_NAME": "c\ufffd"})
    assert derive_run_uuid(odd) == derive_run_uuid({**odd, "SLURM_CLUSTER_NAME": "c\ufffd"})
    assert derive_run_uuid({}, run_id="r\udcff") == derive_run_uuid({}, run_id="r\ufffd")
    assert ensure_run_id("r\udcff") == ensure_run_id(environ={"NEMO_LENS_RUN_ID": "r\udcff"}) == "r\ufffd"
