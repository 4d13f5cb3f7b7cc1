"""A real SLURM on loopback: four virtual nodes with two fake GPUs each, in a temporary folder, on free ports.

A keeper waits beside it and ends what was started here, also when the tests are killed before they could.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

NODES = ("gpu-a1", "gpu-a2", "gpu-b07", "gpu-b08")

_PACKAGES = "slurmctld slurmd slurm-client munge"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
# What would configure the commands, the jobs, or the telemetry of the jobs.
_FOREIGN = ("SLURM", "SBATCH", "SRUN", "SQUEUE", "SCANCEL", "SINFO", "OTEL_", "NEMO_LENS", "TRACE", "BAGGAGE")

_KEEPER = Path(__file__).parent / "programs" / "slurm_keeper.py"
_CLIENT_PORTS = 100  # an srun listens on about four
_START_TIMEOUT_S = 30.0
_COMMAND_TIMEOUT_S = 60.0
_JOB_TIMEOUT_S = 90.0
# The longest Unix socket name that bind() takes.
_SOCKET_NAME_BYTES = 107

# The GPUs are whatever character devices every machine has: nothing opens them.
_GRES = "NodeName={nodes} Name=gpu File=/dev/null\nNodeName={nodes} Name=gpu File=/dev/zero\n"
_CONF = """
ClusterName=lens
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SrunPortRange={client_ports}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
MessageTimeout=60
BatchStartTimeout=60
ReturnToService=2
KillWait=2
GresTypes=gpu
{nodes}
PartitionName=train Nodes=ALL Default=YES MaxTime=1:00:00 State=UP
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=4096 Gres=gpu:2"


class SlurmUnavailableError(RuntimeError):
    """SLURM is not installed on this machine, or may not run here."""


class SlurmCluster:
    """A running SLURM: its commands, and its jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = _environ(folder)

    def run(self, *command: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        """Run one of SLURM's commands and return what it printed."""
        done = subprocess.run(
            command,
            env={**self.environ, **(environ or {})},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} gave {done.returncode}:\n{done.stdout}{done.stderr}{self.logs()}")
        return done.stdout.strip()

    def submit(self, *command: str, environ: Mapping[str, str], cwd: Path) -> str:
        """Submit a batch job, its output in ``cwd``, and return its id."""
        options = ("--parsable", "--output=%j.out", "--time=5", "--no-requeue")
        return self.run("sbatch", *options, *command, environ=environ, cwd=cwd).partition(";")[0]

    def jobs(self, job: str) -> list[dict[str, str]]:
        """Return what ``scontrol show job`` says: one mapping an array element or component of a heterogeneous job."""
        return [_fields(paragraph) for paragraph in self.run("scontrol", "show", "job", job).split("\n\n")]

    def config(self, name: str) -> str:
        """Return a setting as ``scontrol show config`` says it."""
        lines = self.run("scontrol", "show", "config").splitlines()
        return next(line.partition("=")[2].strip() for line in lines if line.split()[:1] == [name])

    def nodes(self, listed: str) -> list[str]:
        """Return the names in a node list such as ``gpu-a[1-2],gpu-b07``."""
        return self.run("scontrol", "show", "hostnames", listed).split()

    def wait_for_job(self, job: str, cwd: Path) -> list[dict[str, str]]:
        """Wait until all of a job has completed and return it as :meth:`jobs` does."""

        def finished() -> list[dict[str, str]] | None:
            parts = self.jobs(job)
            ended = all(part["JobState"] not in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING") for part in parts)
            return parts if ended else None

        parts = self.wait_for(finished, f"the end of job {job}", cwd)
        if wrong := [part for part in parts if part["JobState"] != "COMPLETED"]:
            states = ", ".join(f"{part['JobId']} {part['JobState']} {part['ExitCode']}" for part in wrong)
            raise RuntimeError(f"job {job} went wrong: {states}\n{self._outputs(cwd)}{self.logs()}")
        return parts

    def wait_for(self, condition: Callable[[], _T | None], what: str, cwd: Path | None = None) -> _T:
        """Wait until ``condition`` holds, return what it returned; on failure say what the job and SLURM wrote."""
        deadline = time.monotonic() + _JOB_TIMEOUT_S
        while not (value := condition()):
            if time.monotonic() > deadline:
                queue = self.run("squeue", "--all")
                raise TimeoutError(f"no sign of {what}:\n{queue}\n{self._outputs(cwd) if cwd else ''}{self.logs()}")
            time.sleep(0.1)
        return value

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        return _tails(self.folder.glob("*.log"))

    def _outputs(self, cwd: Path) -> str:
        return _tails(cwd.glob("*.out"))


@contextmanager
def running_slurm() -> Iterator[SlurmCluster]:
    """Run a SLURM until the block ends.

    Raises:
        SlurmUnavailableError: SLURM is not installed, or this process may not run it.
        RuntimeError: It did not start; the message has the daemons' logs.
    """
    _require()
    # Not pytest's folder: its name is too long for a socket's, and closed to all but its owner.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir=_short_folder()))
    folder.chmod(0o755)
    daemons: list[subprocess.Popen[bytes]] = []
    keeper = subprocess.Popen(
        (sys.executable, str(_KEEPER), str(folder)), stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        _write_configuration(folder)
        cluster = SlurmCluster(folder)
        _start(cluster, daemons)
        yield cluster
    finally:
        keeper.communicate()  # closes its input
        for daemon in daemons:
            daemon.wait(timeout=10)


def _require() -> None:
    missing = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    if missing:
        raise SlurmUnavailableError(f"missing: {', '.join(missing)} (Debian: apt-get install {_PACKAGES})")
    if os.geteuid() != 0:
        raise SlurmUnavailableError("its daemons start jobs as any user, so these tests must run as root")


def _short_folder() -> str:
    default = tempfile.gettempdir()
    return default if len(os.fsencode(default)) + 40 < _SOCKET_NAME_BYTES else "/tmp"


def _environ(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(_FOREIGN)}
    return {**kept, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}


def _write_configuration(folder: Path) -> None:
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(1024))
    first = _free_ports(1 + len(NODES) + _CLIENT_PORTS)
    host = socket.gethostname().partition(".")[0]
    nodes = [_NODE.format(name=name, host=host, port=first + number) for number, name in enumerate(NODES, 1)]
    clients = first + 1 + len(NODES)
    conf = _CONF.format(
        host=host,
        port=first,
        client_ports=f"{clients}-{clients + _CLIENT_PORTS - 1}",
        folder=folder,
        nodes="\n".join(nodes),
    )
    (folder / "slurm.conf").write_text(conf, encoding="utf-8")
    (folder / "gres.conf").write_text(_GRES.format(nodes=",".join(NODES)), encoding="utf-8")


def _free_ports(count: int) -> int:
    """Return the first of ``count`` ports in a row, below those that the kernel gives to clients."""
    choice = random.SystemRandom()
    for _ in range(200):
        first = choice.randrange(20_000, 32_000 - count)
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError(f"no {count} free ports in a row between 20000 and 32000")


def _start(cluster: SlurmCluster, daemons: list[subprocess.Popen[bytes]]) -> None:
    folder = cluster.folder

    def start(name: str, *command: str) -> None:
        with (folder / f"{name}.log").open("wb") as log:
            daemons.append(
                subprocess.Popen(
                    command,
                    env=cluster.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def wait_until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in daemons):
                raise RuntimeError(f"SLURM did not come to {what}:\n{cluster.logs()}")
            time.sleep(0.05)

    munge = {name: f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed")}
    # --force: a parent folder that others may write to is a warning.
    start("munged", "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge.values())
    wait_until((folder / "munge.socket").exists, "a socket of munge")
    start("slurmctld", "slurmctld", "-D", "-i")
    for node in NODES:
        start(f"slurmd-{node}", "slurmd", "-D", "-N", node)

    def all_idle() -> bool:
        command = ("sinfo", "--noheader", "--states=idle", "--format=%D")
        answer = subprocess.run(
            command, env=cluster.environ, capture_output=True, timeout=_START_TIMEOUT_S, check=False
        )
        return answer.stdout.split() == [str(len(NODES)).encode()]

    wait_until(all_idle, "four idle nodes")


def _fields(paragraph: str) -> dict[str, str]:
    """Read one job of ``scontrol show job``; a name may hold anything and ends its line."""
    first, *rest = paragraph.strip("\n").split("\n")
    head, _, name = first.partition(" JobName=")
    words = head.split() + [word for line in rest for word in line.split()]
    return {**dict(word.split("=", 1) for word in words if "=" in word), "JobName": name}


def _tails(paths: Iterator[Path]) -> str:
    return "".join(f"\n--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in sorted(paths))
