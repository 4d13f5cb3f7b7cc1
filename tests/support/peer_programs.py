"""Real programs that tests talk to: made once by a script, cached outside the tree, run on free ports of loopback."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_SUPPORT = Path(__file__).parent
_UNAVAILABLE = 75  # exit status of a build.sh for a package that cannot be had
_START_TIMEOUT_S = 15.0
_BUILD_TIMEOUT_S = 900.0
# The programs that tests talk to: the folders with a build.sh.
PEERS = ("otelcol", "victoria_metrics", "docker_compose", "kustomize", "prometheus")

# Why not, of those that could not be had: a network that does not answer is waited for once.
_tried_in_vain: dict[str, str] = {}


class PeerUnavailableError(RuntimeError):
    """A package that the program is made of cannot be had on this machine."""


def cached_binary(peer: str) -> Path:
    """Return where the program made by the present sources is cached, whether it is there or not."""
    digest = hashlib.sha256()
    for source in sorted((_SUPPORT / peer).iterdir()):
        digest.update(source.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "nemo-lens" / f"{peer}-{digest.hexdigest()[:12]}"


def build_command(peer: str) -> list[str]:
    """Return the command that makes the program unless the cache has it; a second one waits for the first."""
    return [str(_SUPPORT / peer / "build.sh"), str(cached_binary(peer))]


def peer_binary(peer: str) -> Path:
    """Return the program, made now when the cache has none.

    Raises:
        PeerUnavailableError: A package that it is made of cannot be had.
        RuntimeError: Making it failed for another reason.
    """
    binary = cached_binary(peer)
    if binary.exists():
        return binary
    if peer in _tried_in_vain:
        raise PeerUnavailableError(_tried_in_vain[peer])
    build = subprocess.run(
        build_command(peer),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=False,
    )
    if build.returncode == _UNAVAILABLE:
        _tried_in_vain[peer] = build.stdout.strip().splitlines()[-1]
        raise PeerUnavailableError(_tried_in_vain[peer])
    if build.returncode:
        raise RuntimeError(f"making {peer} failed:\n{build.stdout[-4000:]}")
    return binary


@contextmanager
def running_peer(command: Sequence[str | Path], ports: Sequence[int], log: Path) -> Iterator[None]:
    """Run a program for the length of a ``with`` block, which begins when it listens on its ports.

    Args:
        command: The program and its arguments.
        ports: Ports of loopback on which it will listen.
        log: File for what it prints.
    """
    with log.open("wb") as output:
        process = subprocess.Popen([*map(str, command)], stdout=output, stderr=output)
    try:
        wait_for(lambda: process.poll() is not None or all(map(_listens, ports)), _START_TIMEOUT_S)
        if process.poll() is not None or not all(map(_listens, ports)):
            raise RuntimeError(f"{command[0]} did not start:\n{log.read_text()[-4000:]}")
        yield
    finally:
        process.terminate()
        process.wait(timeout=10)


def free_port() -> int:
    """Return a port of loopback on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], object], timeout_s: float) -> bool:
    """Wait until ``condition`` holds; return whether it did."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
