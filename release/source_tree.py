"""The tree that is released: its version, the files that the packages share, the changelog, its place in git."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from .problems import Problem, ReleaseRefusedError

NAMES = ("api", "sdk", "contrib")  # in the order of upload: what is depended on comes first
SHARED_FILES = ("VERSION", "LICENSE", "hatch_build.py")


@dataclass(frozen=True)
class SourceTree:
    """A checkout.

    Args:
        root: the folder of ``VERSION`` and ``packages``.
    """

    root: Path

    @property
    def version(self) -> str:
        """What ``VERSION`` says."""
        return (self.root / "VERSION").read_text(encoding="utf-8").strip()

    def package(self, name: str) -> Path:
        """Return the folder of the wheel that is called ``name`` for short."""
        return self.root / "packages" / f"nemo-lens-{name}"

    def git(self, *words: str) -> str | None:
        """Return what git prints, or None where there is no git, no repository or no answer."""
        try:
            run = subprocess.run(
                ["git", "-C", str(self.root), *words], capture_output=True, text=True, timeout=60, check=False
            )
        except OSError:
            return None
        return run.stdout.strip() if run.returncode == 0 else None


def source_date_epoch(tree: SourceTree, environ: Mapping[str, str] | None = None) -> int:
    """Return the time that goes into the archives: ``SOURCE_DATE_EPOCH``, else the last commit's, in epoch seconds.

    Raises:
        ReleaseRefusedError: neither can be had.
    """
    given = (os.environ if environ is None else environ).get("SOURCE_DATE_EPOCH", "").strip()
    found = given or tree.git("log", "-1", "--format=%ct")
    if found and found.isdecimal():
        return int(found)
    what = f"SOURCE_DATE_EPOCH is {given!r}" if given else f"{tree.root} is no git repository with a commit"
    remedy = "set SOURCE_DATE_EPOCH to the epoch seconds that the archives shall carry, or release from a git checkout"
    raise ReleaseRefusedError([Problem(what, remedy)])


def check_source(tree: SourceTree) -> Iterator[Problem]:
    """Check what every release needs of the tree, before anything is built."""
    yield from _check_version(tree)
    for name in NAMES:
        for shared in SHARED_FILES:
            copy = tree.package(name) / shared
            if not copy.is_file() or copy.read_bytes() != (tree.root / shared).read_bytes():
                where = copy.relative_to(tree.root)
                said = f": it says {copy.read_text(encoding='utf-8').strip()}" if shared == "VERSION" else ""
                yield Problem(
                    f"{where} is not the {shared} of the root{said if copy.is_file() else ''}",
                    f"make it a link again: ln -sfn ../../{shared} {where}",
                )
    heading = changelog_heading(tree)
    if heading is None:
        yield Problem(
            f"CHANGELOG.md has no section for {tree.version}",
            f"add '## {tree.version} - unreleased' with what users notice",
        )


def check_final(tree: SourceTree) -> Iterator[Problem]:
    """Check what a release that will be published needs beyond that: a date, a clean tree, a tag on this commit."""
    date = changelog_heading(tree)
    if date is not None and not _is_date(date):
        yield Problem(
            f"CHANGELOG.md dates {tree.version} {date or 'not at all'!r}",
            f"write the day of the release: '## {tree.version} - {datetime.date.today().isoformat()}'",
        )
    status = tree.git("status", "--porcelain")
    if status is None:
        yield Problem(f"{tree.root} is no git repository", "cut a release from a git checkout")
        return
    if status:
        listed = ", ".join(line[2:].strip() for line in status.splitlines()[:5])
        yield Problem(f"the git tree is not clean: {listed}", "commit or remove what git status lists")
    tag = f"v{tree.version}"
    if tag not in (tree.git("tag", "--points-at", "HEAD") or "").split():
        elsewhere = tree.git("rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}")
        yield Problem(
            f"the tag {tag} is on another commit, {elsewhere[:12]}" if elsewhere else f"there is no tag {tag}",
            "a published version never changes: raise VERSION" if elsewhere else f"git tag -a {tag} -m {tag}",
        )


def changelog_heading(tree: SourceTree) -> str | None:
    """Return what stands after the dash in the heading of this version, or None without such a section."""
    pattern = re.compile(rf"^## {re.escape(tree.version)}(?: - (.*))?$", re.MULTILINE)
    found = pattern.search((tree.root / "CHANGELOG.md").read_text(encoding="utf-8"))
    return None if found is None else (found[1] or "").strip()


def _check_version(tree: SourceTree) -> Iterator[Problem]:
    try:
        version = Version(tree.version)
    except InvalidVersion:
        yield Problem(f"VERSION says {tree.version!r}, which is no version", "write one as PEP 440 has it: 0.2.0")
        return
    if str(version) != tree.version or version.local:
        remedy = f"write {version.public}: file names, pins and the tag carry the normal form without a local part"
        yield Problem(f"VERSION says {tree.version!r}, which an index would not keep as it is", remedy)


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
