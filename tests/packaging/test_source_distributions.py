"""Source distributions: complete in themselves, and the same wheel comes out of them."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from support.distributions import NAMES, VERSION, Built, build


def _unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        if sys.version_info >= (3, 12):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
    return folder / sdist.name.removesuffix(".tar.gz")


@pytest.mark.parametrize("name", NAMES)
def test_it_holds_no_links(built: dict[str, Built], name: str) -> None:
    """The shared files are in it themselves, each once; a link would point out of it."""
    with tarfile.open(built[name].sdist) as archive:
        members = archive.getmembers()
    assert not [item.name for item in members if not (item.isfile() or item.isdir())]
    names = [item.name for item in members]
    assert len(names) == len(set(names))
    for shared in ("VERSION", "LICENSE", "hatch_build.py", "README.md", "pyproject.toml"):
        assert f"nemo_lens_{name}-{VERSION}/{shared}" in names


@pytest.mark.parametrize("name", NAMES)
def test_the_same_wheel_comes_out_of_it(built: dict[str, Built], name: str, tmp_path: Path) -> None:
    """A wheel built from the source distribution equals the one built from the tree, byte for byte."""
    from_sdist = build(name, _unpacked(built[name].sdist, tmp_path / "source"), tmp_path / "dist")
    assert from_sdist.files() == built[name].files()
    assert from_sdist.wheel.read_bytes() == built[name].wheel.read_bytes()
