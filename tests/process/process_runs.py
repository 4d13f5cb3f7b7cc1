"""Runs the programs of ``programs/`` as processes of their own, and reads what they said and what they wrote."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.all_signals import clean_environ
from support.otlp_decode import Record
from support.written import Written

__all__ = ["Finished", "Running", "Written", "hanging_endpoint", "refusing_endpoint", "run", "warnings_of"]

PROGRAMS = Path(__file__).parent / "programs"
# Python 3.12 and later warn of every fork beside threads, which is what these programs are about. All else is an error,
# in what they start too.
_WARNINGS = ("error", "ignore:This process (pid:DeprecationWarning")


@dataclass(frozen=True)
class Finished:
    """How a process ended."""

    code: int
    facts: list[Record]
    stderr: str
    # On the monotonic clock, which all processes of a machine share.
    ended_at: float

    def fact(self, key: str) -> Any:
        """Return what the process said about ``key``, the last time it did."""
        return next(fact[key] for fact in reversed(self.facts) if key in fact)

    def all_facts(self, key: str) -> list[Any]:
        """Return all that was said about ``key``, by the process and by its children."""
        return [fact[key] for fact in self.facts if key in fact]


class Running:
    """A process that runs a scenario of a program."""

    def __init__(self, program: str, scenario: str, *args: object, environ: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / f"{program}.py"), scenario, *map(str, args)],
            env=clean_environ({"PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": ",".join(_WARNINGS), **(environ or {})}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._said: list[str] = []

    def wait_until(self, key: str) -> Any:
        """Return what the process says about ``key``, once it does."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)
            fact = json.loads(line)
            if key in fact:
                return fact[key]
        raise AssertionError(f"the process ended without a word about {key}: {self.finish().stderr}")

    def go_on(self) -> None:
        """Let whoever waits in the process go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> float:
        """Send a signal; return when, on the monotonic clock."""
        self._process.send_signal(number)
        return time.monotonic()

    def finish(self, timeout_s: float = 30) -> Finished:
        """Wait for the end of the process and of all that hold its pipes."""
        try:
            out, err = self._process.communicate(timeout=timeout_s)
            ended_at = time.monotonic()
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session: its children and nobody else
            out, err = self._process.communicate()
            raise AssertionError(f"still running after {timeout_s} s\n{''.join(self._said)}{out}\n{err}") from None
        lines = [*self._said, *out.splitlines()]
        facts = [json.loads(line) for line in lines if line.strip()]
        return Finished(self._process.returncode, facts, err, ended_at)


def run(
    program: str, scenario: str, *args: object, environ: Mapping[str, str] | None = None, timeout_s: float = 30
) -> Finished:
    """Run a scenario to its end."""
    return Running(program, scenario, *args, environ=environ).finish(timeout_s)


def warnings_of(text: str, part: str) -> list[str]:
    """Return the lines of stderr that hold ``part``."""
    return [line for line in text.splitlines() if part in line]


def refusing_endpoint() -> str:
    """Return a loopback URL where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@contextmanager
def hanging_endpoint() -> Iterator[str]:
    """Give a loopback URL whose listener takes connections and all that is sent, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        connections: list[socket.socket] = []

        def swallow(connection: socket.socket) -> None:
            try:
                while connection.recv(65536):
                    pass
            except OSError:
                pass  # closed at the end, or reset by a sender that gave up

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connections.append(connection)
                threading.Thread(target=swallow, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for connection in connections:
                connection.close()
