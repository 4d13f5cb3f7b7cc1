"""The symptoms of the troubleshooting page, for the tests that reproduce them: what is quoted, and what is advised."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.all_signals import clean_environ
from support.doc_pages import ROOT, Block, blocks
from support.written import Written

PAGE = "docs/troubleshooting.md"
_SYMPTOM = re.compile(r"^### (.+)$", flags=re.M)
_REPRODUCED = re.compile(r"^@symptom\(\"(.+)\"\)$", flags=re.M)
# In what is quoted: N for a number, <name> for any text.
_PLACEHOLDER = re.compile(r"\bN\b|<[\w ]+>")


def symptoms() -> list[str]:
    """Return the headings of the page that are symptoms, in order."""
    return _SYMPTOM.findall((ROOT / PAGE).read_text(encoding="utf-8"))


def reproduced() -> list[str]:
    """Return the headings for which there is a test, wherever its session runs it."""
    modules = sorted((ROOT / "tests").rglob("test_symptom*.py"))
    return [heading for module in modules for heading in _REPRODUCED.findall(module.read_text(encoding="utf-8"))]


def matches(quoted: str, line: str) -> bool:
    """Return whether a line holds what is quoted, with something in place of each placeholder."""
    parts, pattern = _PLACEHOLDER.split(_one_blank(quoted)), []
    for part, placeholder in zip(parts, [*_PLACEHOLDER.findall(_one_blank(quoted)), ""], strict=True):
        pattern += [re.escape(part), {"": "", "N": r"\d+(?:\.\d+)?"}.get(placeholder, ".+")]
    return re.search("".join(pattern), _one_blank(line)) is not None


def _one_blank(text: str) -> str:
    return " ".join(text.split())


class Symptom:
    """A section of the page, and what a test has seen of it."""

    def __init__(self, heading: str) -> None:
        own = [block for block in blocks(PAGE) if block.heading == heading]
        self._messages = _by_language(own, "text")
        self._shell = _by_language(own, "sh")
        self._python = _by_language(own, "python")
        self._unseen = [line for block in self._messages for line in block.text.splitlines() if line.strip()]
        self._unused = [*self._shell, *self._python]

    def seen(self, *printed: str) -> None:
        """Note what processes that have the symptom printed: each text shows some of what is quoted."""
        for text in printed:
            lines = text.splitlines()
            found = [quoted for quoted in self._unseen if any(matches(quoted, line) for line in lines)]
            assert found, f"none of {self._unseen} is in\n{text}"
            self._unseen = [quoted for quoted in self._unseen if quoted not in found]

    def absent(self, printed: str) -> None:
        """Check that what is quoted is not said any more."""
        lines = printed.splitlines()
        said = [
            quoted
            for block in self._messages
            for quoted in block.text.splitlines()
            if any(matches(quoted, line) for line in lines)
        ]
        assert not said, f"still said: {said}"

    def cure(self, number: int = 0, **replacing: str) -> str:
        """Return the shell lines that are advised, examples of hosts and names in them replaced."""
        return self._advised(self._shell, number, replacing)

    def python(self, number: int = 0, **replacing: str) -> str:
        """Return the Python that is advised."""
        return self._advised(self._python, number, replacing)

    def _advised(self, given: list[Block], number: int, replacing: Mapping[str, str]) -> str:
        block = given[number]
        self._unused = [each for each in self._unused if each is not block]
        text = block.text
        for example, real in {_EXAMPLES.get(name, name): real for name, real in replacing.items()}.items():
            assert example in text, f"{block} does not hold {example!r}"
            text = text.replace(example, real)
        return text

    def finish(self) -> None:
        """Check that all that is quoted was seen and all that is advised was used."""
        assert not self._unseen, f"quoted and never printed: {self._unseen}"
        assert not self._unused, f"advised and never tried: {[str(block) for block in self._unused]}"


# What the page says for a host of the reader's.
_EXAMPLES = {"http_endpoint": "http://collector:4318", "grpc_endpoint": "http://collector:4317"}


def _by_language(given: list[Block], language: str) -> list[Block]:
    return [block for block in given if block.language == language]


def symptom(heading: str) -> Callable[[Callable[..., None]], Any]:
    """Mark the one test that reproduces a symptom; it is given the section of the page as ``case``."""

    def decorate(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def checked(*args: Any, case: str, **fixtures: Any) -> None:
            section = Symptom(case)
            test(*args, case=section, **fixtures)
            section.finish()

        return pytest.mark.parametrize("case", [heading], ids=[""])(checked)

    return decorate


@dataclass(frozen=True)
class Ended:
    """A process that has ended: what it said, and what telemetry it wrote, when it wrote to files."""

    code: int
    out: str
    err: str
    written: Written


class Lab:
    """Runs programs in a folder, each with telemetry on and written to files unless its variables say otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs = 0

    def environ(self, **variables: str) -> tuple[dict[str, str], Written]:
        """Return the environment of a run, and what it will have written."""
        self._runs += 1
        target = self.folder / f"run{self._runs}"
        target.mkdir()
        written = Written(target)
        base = {"NEMO_LENS_ENABLED": "1", "NEMO_LENS_METRICS_ENABLED": "0", "NEMO_LENS_SHUTDOWN_TIMEOUT_MS": "1500"}
        return clean_environ({**base, **written.environ, **variables}), written

    @contextmanager
    def started(self, code: str, *, cure: str = "", unset: tuple[str, ...] = (), **variables: str) -> Iterator[Running]:
        """Start a program after the shell lines of a cure."""
        environ, written = self.environ(**variables)
        program = written.folder / "program.py"
        program.write_text(code, encoding="utf-8")
        for name in unset:
            environ.pop(name, None)
        process = subprocess.Popen(
            ["bash", "-ec", f'{cure}\nexec "$0" "$1"', sys.executable, str(program)],
            cwd=written.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Running(process, written)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def run(self, code: str, *, cure: str = "", unset: tuple[str, ...] = (), **variables: str) -> Ended:
        """Run a program to its end."""
        with self.started(code, cure=cure, unset=unset, **variables) as running:
            return running.finish()

    def command(self, *words: str, cure: str = "", **variables: str) -> Ended:
        """Run ``nemo-lens`` after the shell lines of a cure."""
        environ, written = self.environ(**variables)
        done = subprocess.run(
            ["bash", "-ec", f'{cure}\nexec "$0" -m nemo_lens.sdk.cli "$@"', sys.executable, *words],
            cwd=self.folder,
            env={**environ, "COLUMNS": "400"},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr, written)


class Running:
    """A process that has been started."""

    def __init__(self, process: subprocess.Popen[str], written: Written) -> None:
        self._process = process
        self.written = written

    def said(self) -> str:
        """Return its next line."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def terminate(self) -> None:
        """Send SIGTERM, as what evicts a job does."""
        self._process.send_signal(signal.SIGTERM)

    def finish(self, timeout_s: float = 50) -> Ended:
        """Wait for its end."""
        out, err = self._process.communicate(timeout=timeout_s)
        return Ended(self._process.returncode, out, err, self.written)
