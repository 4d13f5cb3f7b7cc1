"""A built wheel and its source distribution, read."""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import tarfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from functools import cached_property
from pathlib import Path

from packaging.requirements import Requirement


@dataclass(frozen=True)
class Distribution:
    """What is published of one project.

    Args:
        name: the wheel's short name: ``api``, ``sdk`` or ``contrib``.
        wheel: the built wheel.
        sdist: the built source distribution.
    """

    name: str
    wheel: Path
    sdist: Path

    @property
    def archives(self) -> tuple[Path, Path]:
        """Both files, in the order of upload."""
        return self.sdist, self.wheel

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The wheel's files and their content."""
        return members(self.wheel)

    def info(self, item: str) -> str:
        """Return a file of the wheel's ``.dist-info``, empty when it has none of that name."""
        folder = f"{'-'.join(self.wheel.name.split('-')[:2])}.dist-info"
        return self.files.get(f"{folder}/{item}", b"").decode()

    @cached_property
    def metadata(self) -> Message:
        """The wheel's ``METADATA``."""
        return Parser().parsestr(self.info("METADATA"))

    @cached_property
    def sdist_metadata(self) -> Message:
        """The ``PKG-INFO`` of the source distribution."""
        top = self.sdist.name.removesuffix(".tar.gz")
        return Parser().parsestr(members(self.sdist)[f"{top}/PKG-INFO"].decode())

    @cached_property
    def requirements(self) -> list[Requirement]:
        """What the wheel depends on, extras included."""
        return [Requirement(line) for line in self.metadata.get_all("Requires-Dist", [])]

    @cached_property
    def entry_points(self) -> dict[str, dict[str, str]]:
        """The wheel's entry points by group."""
        parser = configparser.ConfigParser(delimiters=("=",))
        parser.read_string(self.info("entry_points.txt"))
        return {group: dict(parser[group]) for group in parser.sections()}

    @cached_property
    def record(self) -> dict[str, str]:
        """The paths and digests of the wheel's ``RECORD``."""
        return {row[0]: row[1] for row in csv.reader(self.info("RECORD").splitlines()) if row}


def members(archive: Path) -> dict[str, bytes]:
    """Return the names and contents of the files in a wheel or a source distribution."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {item: wheel.read(item) for item in wheel.namelist()}
    with tarfile.open(archive) as sdist:
        opened = ((item.name, sdist.extractfile(item)) for item in sdist.getmembers() if item.isfile())
        return {name: file.read() for name, file in opened if file is not None}


def record_digest(content: bytes) -> str:
    """Return the digest of ``content`` as ``RECORD`` writes it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
