"""The site, built once for all tests that look at it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.built_site import ROOT, Site, build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, str]:
    """The site, and what was said while it was built."""
    pytest.importorskip("mkdocs", reason="the site is built where mkdocs is installed: nox -s docs")
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return Site(folder), done.stderr


@pytest.fixture(scope="session")
def site(built: tuple[Site, str]) -> Site:
    """The site."""
    return built[0]


@pytest.fixture
def copied_docs(tmp_path: Path) -> Path:
    """A copy of the configuration and of the pages, to be spoiled; the sources are those of the checkout."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "packages").symlink_to(ROOT / "packages")
    return tmp_path
