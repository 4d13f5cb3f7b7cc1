"""Reproducible builds: each archive is built twice in different surroundings, each wheel from its own sources too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .distributions import Distribution, members
from .problems import Problem, ReleaseRefusedError
from .source_tree import NAMES, SHARED_FILES, SourceTree


@dataclass(frozen=True)
class Surroundings:
    """What must not show in an archive: who builds it, where, and on which machine."""

    umask: int
    environ: Mapping[str, str]


USUAL = Surroundings(0o022, {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"})
OTHER = Surroundings(
    0o077,
    {
        "TZ": "Pacific/Kiritimati",
        "LC_ALL": "POSIX",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONHASHSEED": "4711",
        "USER": "somebody",
        "HOME": "/nonexistent",
    },
)


def build_reproducibly(tree: SourceTree, epoch: int, work: Path) -> list[Distribution]:
    """Build everything in ``work``, twice and a third time from the source distributions, and compare.

    Args:
        tree: what is built.
        epoch: ``SOURCE_DATE_EPOCH`` in seconds.
        work: an empty folder.

    Returns:
        The distributions of the first build, in the order of upload.

    Raises:
        ReleaseRefusedError: a build failed, or two builds differ.
    """
    # A snapshot first: somebody may be at work in the tree.
    here = _copy(tree, work / "here", 0o664)
    elsewhere = _copy(here, work / "else" / "where", 0o600)

    def build_one(name: str) -> tuple[Distribution, list[Problem]]:
        first = _build(name, here.package(name), work / "first" / name, USUAL, epoch, "wheel", "sdist")
        again = _build(name, elsewhere.package(name), work / "again" / name, OTHER, epoch, "wheel", "sdist")
        built = Distribution(name, wheel=_only(first, name, "*.whl"), sdist=_only(first, name, "*.tar.gz"))
        unpacked = _unpack(built.sdist, work / "unpacked")
        from_sdist = _build(name, unpacked, work / "from-sdist" / name, OTHER, epoch, "wheel")
        repeated = "built again in another folder, time zone, locale and umask"
        return built, [
            *_differences(built.wheel, again, repeated),
            *_differences(built.sdist, again, repeated),
            *_differences(built.wheel, from_sdist, "built from the source distribution"),
        ]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(build_one, NAMES))
    problems = [problem for _, found in results for problem in found]
    if problems:
        raise ReleaseRefusedError(problems)
    return [built for built, _ in results]


def _build(name: str, project: Path, output: Path, where: Surroundings, epoch: int, *targets: str) -> Path:
    words = [word for target in targets for word in ("-t", target)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LC_", "HATCH"))}
    run = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(output), *words],
        cwd=project,
        env={**kept, **where.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        umask=where.umask,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if run.returncode != 0:
        what = f"nemo-lens-{name} does not build:\n{run.stderr.strip()}"
        raise ReleaseRefusedError([Problem(what, f"cd packages/nemo-lens-{name} && python -m hatchling build")])
    return output


def _only(folder: Path, name: str, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        what = f"the build of nemo-lens-{name} made {len(found)} files {pattern}"
        raise ReleaseRefusedError([Problem(what, "let its pyproject.toml describe one project")])
    return found[0]


def _copy(tree: SourceTree, target: Path, mode: int) -> SourceTree:
    """Copy what is built, with new times and another mode, and the links as they are."""

    def copy_file(source: str, copied: str) -> str:
        shutil.copyfile(source, copied)
        Path(copied).chmod(mode)
        return copied

    target.mkdir(parents=True)
    for name in (*SHARED_FILES, ".gitignore"):
        if (tree.root / name).exists():
            copy_file(str(tree.root / name), str(target / name))
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(tree.root / "packages", target / "packages", symlinks=True, ignore=ignore, copy_function=copy_file)
    return SourceTree(target)


def _unpack(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
    return folder / sdist.name.removesuffix(".tar.gz")


def _differences(first: Path, folder: Path, how: str) -> Iterator[Problem]:
    second = folder / first.name
    if not second.exists():
        made = ", ".join(sorted(path.name for path in folder.iterdir()))
        yield Problem(f"{first.name}, {how}, has another name: {made}", "let nothing but VERSION name the version")
    elif first.read_bytes() != second.read_bytes():
        one, other = members(first), members(second)
        differ = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
        where = f"in {', '.join(differ[:5])}" if differ else "in the order, the times or the modes of its members"
        yield Problem(f"{first.name}, {how}, differs {where}", "take clocks, paths and chance out of what is packed")
