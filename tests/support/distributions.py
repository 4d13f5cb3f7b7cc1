"""Built wheels and source distributions, read."""

from __future__ import annotations

import configparser
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("api", "sdk", "contrib")
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()


@dataclass(frozen=True)
class Built:
    """A wheel and a source distribution of one project."""

    name: str
    wheel: Path
    sdist: Path

    def files(self) -> dict[str, bytes]:
        """Return the wheel's files and their content."""
        with zipfile.ZipFile(self.wheel) as archive:
            return {item: archive.read(item) for item in archive.namelist()}

    def _info(self, item: str) -> str:
        return self.files()[f"nemo_lens_{self.name}-{VERSION}.dist-info/{item}"].decode()

    def metadata(self) -> Message:
        """Return the wheel's METADATA."""
        return Parser().parsestr(self._info("METADATA"))

    def entry_points(self) -> dict[str, dict[str, str]]:
        """Return the wheel's entry points by group."""
        parser = configparser.ConfigParser(delimiters=("=",))
        parser.read_string(self._info("entry_points.txt"))
        return {group: dict(parser[group]) for group in parser.sections()}


def build(name: str, project: Path, output: Path) -> Built:
    """Build the wheel and the source distribution of a project folder with its own backend, which needs no network."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(output), "-t", "wheel", "-t", "sdist"]
    run = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    stem = f"nemo_lens_{name}-{VERSION}"
    return Built(name, output / f"{stem}-py3-none-any.whl", output / f"{stem}.tar.gz")


def unpack(built: Built, folder: Path) -> Path:
    """Install a wheel, without its dependencies, into a folder for ``sys.path``."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    run = subprocess.run(
        [*pip, "--target", str(folder), str(built.wheel)], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return folder
