"""What ``python -m release`` lets pass and what it refuses, on copies of the packages."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from support.distributions import NAMES, ROOT, VERSION

pytest.importorskip("twine", reason="twine checks long descriptions: run `nox -s packaging`")

COPIED = ("CHANGELOG.md", "LICENSE", "VERSION", ".gitignore", "hatch_build.py", "packages", "release")
DIST = [f"nemo_lens_{name}-{VERSION}{suffix}" for name in NAMES for suffix in (".tar.gz", "-py3-none-any.whl")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy what is released, and what releases it, into a folder without git."""
    root = tmp_path / "tree"
    root.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, root / name)
    return root


def release(tree: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the checks on a copy."""
    return subprocess.run(
        [sys.executable, "-m", "release", *(options or ["--build-only"])],
        cwd=tree,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refusal(tree: Path, *options: str, **environ: str) -> str:
    """Run the checks, which must refuse and leave nothing to upload; return what they say."""
    run = release(tree, *options, **environ)
    assert run.returncode == 1, run.stdout + run.stderr
    assert not list(tree.glob("dist/nemo_lens_*"))
    return run.stderr


def replace(path: Path, old: str, new: str) -> None:
    """Edit a file, in which ``old`` stands."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def project(tree: Path, name: str) -> Path:
    return tree / "packages" / f"nemo-lens-{name}" / "pyproject.toml"


def test_what_would_be_published(tree: Path) -> None:
    """Six files are left in ``dist``, without what an earlier release left there, and listed in the order of upload."""
    (tree / "dist").mkdir()
    (tree / "dist" / "nemo_lens_api-0.0.9.tar.gz").write_bytes(b"of an earlier release")
    run = release(tree)
    assert run.returncode == 0, run.stderr
    assert sorted(path.name for path in (tree / "dist").iterdir()) == sorted(DIST)
    listed = re.findall(r"^(\d)\. +(nemo-lens-\w+) +(\S+) +(\S+) +(\d+) +([0-9a-f]{64})$", run.stdout, re.MULTILINE)
    assert [row[3] for row in listed] == DIST
    for number, (place, name, version, file, size, digest) in enumerate(listed, start=1):
        content = (tree / "dist" / file).read_bytes()
        assert (place, name, version) == (str(number), f"nemo-lens-{NAMES[(number - 1) // 2]}", VERSION)
        assert (int(size), digest) == (len(content), hashlib.sha256(content).hexdigest())
    assert "Nothing was uploaded" in run.stdout


def test_the_time_in_the_archives_is_the_given_one(tree: Path) -> None:
    """Every member carries ``SOURCE_DATE_EPOCH``; without it and without git the checks say how to give one."""
    assert release(tree, SOURCE_DATE_EPOCH="1800000000").returncode == 0
    for name in DIST:
        if name.endswith(".whl"):
            with zipfile.ZipFile(tree / "dist" / name) as wheel:
                assert {item.date_time for item in wheel.infolist()} == {(2027, 1, 15, 8, 0, 0)}
        else:
            with tarfile.open(tree / "dist" / name) as sdist:
                assert {item.mtime for item in sdist.getmembers()} == {1800000000}
    said = refusal(tree, SOURCE_DATE_EPOCH="", GIT_CEILING_DIRECTORIES=str(tree.parent))
    assert "is no git repository with a commit" in said
    assert "set SOURCE_DATE_EPOCH" in said


def test_a_version_file_of_its_own(tree: Path) -> None:
    """A package whose ``VERSION`` is no longer the root's is named, with the command that mends it."""
    own = tree / "packages" / "nemo-lens-sdk" / "VERSION"
    own.unlink()
    own.write_text("9.9.9\n")
    said = refusal(tree)
    assert "packages/nemo-lens-sdk/VERSION is not the VERSION of the root: it says 9.9.9" in said
    assert "ln -sfn ../../VERSION packages/nemo-lens-sdk/VERSION" in said


def test_versions_out_of_step(tree: Path) -> None:
    """A wheel that takes its version from elsewhere than ``VERSION`` is out of step, wheel and sources alike."""
    replace(project(tree, "api"), 'dynamic = ["version"]', 'version = "9.9.9"')
    replace(project(tree, "api"), "[tool.hatch.metadata.hooks.custom]\n", "")
    said = refusal(tree)
    assert f"METADATA of nemo_lens_api-9.9.9-py3-none-any.whl says version 9.9.9, VERSION says {VERSION}" in said
    assert f"PKG-INFO of nemo_lens_api-9.9.9.tar.gz says version 9.9.9, VERSION says {VERSION}" in said


@pytest.mark.parametrize("version", ["v1", "1.0.0+here", "01.2", "one"])
def test_a_version_that_an_index_would_not_keep(tree: Path, version: str) -> None:
    """``VERSION`` is a version in its normal form, without a local part."""
    (tree / "VERSION").write_text(f"{version}\n")
    assert f"VERSION says {version!r}" in refusal(tree)


# package, what is written into its pyproject.toml instead of what, and what is said of it
WRONG: list[tuple[str, str, str, str]] = [
    (
        "sdk",
        "nemo-lens-api=={version}",
        "nemo-lens-api=={version}.*",
        f"nemo-lens-api=={VERSION}.*, which is no exact pin",
    ),
    (
        "contrib",
        "nemo-lens-api=={version}",
        "nemo-lens-api>={version}",
        f"nemo-lens-api>={VERSION}, which is no exact pin",
    ),
    (
        "contrib",
        "[tool.hatch.metadata.hooks.custom]\ndependencies = [",
        '[tool.hatch.metadata.hooks.custom]\ndependencies = ["nemo-lens-sdk=={version}", ',
        "nemo-lens-contrib requires of its siblings api, sdk; the design says api",
    ),
    (
        "sdk",
        '">=3.10"',
        '">=3.9"',
        "nemo-lens-sdk has Requires-Python >=3.9 and classifiers for 3.10, 3.11, 3.12, 3.13",
    ),
    ("api", '"Apache-2.0"', '"MIT"', "nemo-lens-api names the licence MIT"),
    (
        "api",
        '["LICENSE"]',
        '["pyproject.toml"]',
        "nemo_lens_api-{}-py3-none-any.whl does not carry the text of LICENSE",
    ),
    (
        "sdk",
        "sdk.cli:main",
        "sdk.command:main",
        "leads to nemo_lens.sdk.command:main, which nemo_lens_sdk-{}-py3-none-any",
    ),
    (
        "contrib",
        'packages = ["src/nemo_lens"]',
        'packages = ["src/nemo_lens"]\nforce-include = {"src/nemo_lens/contrib/py.typed" = "nemo_lens/api/py.typed"}',
        "nemo_lens_contrib-{}-py3-none-any.whl installs nemo_lens/api/py.typed outside nemo_lens/contrib",
    ),
]


def test_metadata_that_is_wrong(tree: Path) -> None:
    """Pins that are not exact, arrows, Pythons, licences, entry points and owners of files: all are told at once."""
    for name, old, new, _ in WRONG:
        replace(project(tree, name), old, new)
    said = refusal(tree)
    for *_, expected in WRONG:
        assert expected.format(VERSION) in said
    assert "nemo_lens/api/py.typed is in nemo-lens-api and nemo-lens-contrib" in said
    assert said.count("\n    -> ") == len(WRONG) + 1


def test_a_long_description_that_an_index_cannot_show(tree: Path) -> None:
    """Markup that does not render is refused as twine says it, and a link into the tree by its target."""
    folder = tree / "packages" / "nemo-lens-api"
    (folder / "README.rst").write_text("Title\n==\n\n.. nothing:: of the kind\n\n:ref:`nowhere`\n")
    replace(project(tree, "api"), 'readme = "README.md"', 'readme = "README.rst"')
    replace(
        tree / "packages" / "nemo-lens-sdk" / "README.md", "Apache-2.0.", "[Guide](../../docs/index.md). Apache-2.0."
    )
    said = refusal(tree)
    assert "twine check --strict" in said
    assert "nemo_lens_api" in said
    assert "the long description of nemo-lens-sdk links to ../../docs/index.md" in said


def test_content_that_is_not_reproducible(tree: Path) -> None:
    """A clock, the folder or the time zone in an archive is found, with the file of the archive that it is in."""
    text = """
        chance = {"api": time.time_ns(), "sdk": self.root, "contrib": os.environ["TZ"]}
        metadata["keywords"] = [str(chance[metadata["name"].rpartition("-")[2]])]
"""
    stated = '        metadata["version"] = version\n'
    replace(tree / "hatch_build.py", stated, stated + text)
    replace(tree / "hatch_build.py", "from pathlib import Path\n", "import os\nimport time\nfrom pathlib import Path\n")
    for name in NAMES:
        path = project(tree, name)
        path.write_text(re.sub(r"^keywords = .*\n", "", path.read_text(), flags=re.MULTILINE))
        replace(path, 'dynamic = ["version"', 'dynamic = ["keywords", "version"')
    said = refusal(tree)
    how = "built again in another folder, time zone, locale and umask, differs in"
    for name in NAMES:
        stem = f"nemo_lens_{name}-{VERSION}"
        assert f"{stem}-py3-none-any.whl, {how} {stem}.dist-info/METADATA" in said
        assert f"{stem}.tar.gz, {how} {stem}/PKG-INFO" in said


def test_a_source_distribution_that_lacks_something(tree: Path) -> None:
    """What the wheel holds and the source distribution does not is found by building from the latter."""
    extra = tree / "packages" / "nemo-lens-sdk" / "more" / "extra.py"
    extra.parent.mkdir()
    extra.write_text("")
    replace(
        project(tree, "sdk"),
        "[tool.hatch.build.targets.wheel]",
        '[tool.hatch.build.targets.wheel.force-include]\n"more/extra.py" = "nemo_lens/sdk/extra.py"\n'
        "[tool.hatch.build.targets.wheel]",
    )
    assert "nemo-lens-sdk does not build" in refusal(tree)


def test_a_version_without_its_changes(tree: Path) -> None:
    """A version that the changelog does not know is refused, and what to write is said."""
    replace(tree / "CHANGELOG.md", f"## {VERSION} ", "## 0.0.9 ")
    said = refusal(tree)
    assert f"CHANGELOG.md has no section for {VERSION}" in said
    assert f"add '## {VERSION} - unreleased'" in said


def test_a_dist_folder_in_use(tree: Path) -> None:
    """What somebody else left in ``dist`` is neither removed nor offered for upload."""
    (tree / "dist").mkdir()
    other = tree / "dist" / "other-1.0.tar.gz"
    other.write_bytes(b"of somebody else")
    assert "dist/ holds something else: other-1.0.tar.gz" in refusal(tree)
    assert other.exists()


def test_a_final_release_is_dated_clean_and_tagged(tree: Path, tmp_path: Path) -> None:
    """A version to be published has a date, a clean tree and a tag on this very commit; until then it is refused."""
    git = shutil.which("git")
    assert git is not None, "git is needed to cut a release"
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]

    def run_git(*words: str) -> None:
        subprocess.run([git, "-C", str(tree), *who, *words], check=True, capture_output=True, timeout=60)

    heading = re.compile(rf"^## {re.escape(VERSION)} - .*$", re.MULTILINE)
    changelog = tree / "CHANGELOG.md"
    changelog.write_text(heading.sub(f"## {VERSION} - unreleased", changelog.read_text()))
    assert f"CHANGELOG.md dates {VERSION} 'unreleased'" in refusal(tree, "--final")
    changelog.write_text(heading.sub(f"## {VERSION} - 2026-01-31", changelog.read_text()))

    run_git("init", "-q")
    said = refusal(tree, "--final")
    assert "the git tree is not clean" in said
    run_git("add", ".")
    run_git("commit", "-q", "-m", "one")
    said = refusal(tree, "--final")
    assert f"there is no tag v{VERSION}\n    -> git tag -a v{VERSION}" in said
    assert "not clean" not in said
    run_git("tag", "-a", f"v{VERSION}", "-m", "one")
    run_git("commit", "-q", "--allow-empty", "-m", "two")
    assert f"the tag v{VERSION} is on another commit" in refusal(tree, "--final")

    run_git("tag", "-f", "-a", f"v{VERSION}", "-m", "two")
    programs = tmp_path / "programs"  # all that follows needs uv, which is not here
    programs.mkdir()
    (programs / "git").symlink_to(git)
    said = refusal(tree, "--final", PATH=str(programs))
    assert said.count("\n    -> ") == 1
    assert "uv is not on PATH" in said
