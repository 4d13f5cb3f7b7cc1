"""Fresh environments, made by uv: the wheels are installed, checked, imported and tested in each."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from .built_wheels import SIBLINGS
from .combinations import Combination, Outcome
from .distributions import Distribution, record_digest
from .problems import Problem, ReleaseRefusedError
from .source_tree import NAMES

# What tests/contract imports and pyproject.toml sets options of.
TEST_TOOLS = ("pytest>=8.2", "pytest-timeout>=2.3", "hypothesis>=6.100")
INSTALLER_FILES = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json")
OURS = Path(__file__).parent


class StepError(Exception):
    """A step in an environment did not do what it should."""


class Environments:
    """Makes environments, one a combination, and removes those in which all went well.

    Args:
        root: the checkout whose ``tests/contract`` is run.
        built: the three distributions.
        work: where environments are made.

    Raises:
        ReleaseRefusedError: uv is not there.
    """

    def __init__(self, root: Path, built: Sequence[Distribution], work: Path) -> None:
        self._root = root
        self._built = {one.name: one for one in built}
        self._version: str = built[0].metadata["Version"]
        self._work = work
        found = shutil.which("uv")
        if found is None:
            raise ReleaseRefusedError([Problem("uv is not on PATH: it makes the environments", "pip install uv")])
        self._uv = found
        # An index may have projects of these names: with the constraint a name means the file, whoever asks for it.
        self._siblings = work / "siblings.txt"
        self._siblings.write_text("".join(f"{self._request(name)}\n" for name in NAMES), encoding="utf-8")

    def interpreters(self, wanted: Sequence[str]) -> dict[str, str]:
        """Return the interpreters of the wanted versions that are on this machine."""
        found = {}
        for version in wanted:
            command = [self._uv, "python", "find", "--system", "--no-project", "--no-python-downloads", version]
            run = _run(command, 60)
            if run.returncode == 0:
                found[version] = run.stdout.strip()
        return found

    def put_tools(self, interpreters: dict[str, str]) -> None:
        """Install what the contract suite needs into a folder per Python, for all environments of that Python."""
        for version, interpreter in interpreters.items():
            self._uv_pip("install", "--python", interpreter, "--target", str(self._tools(version)), *TEST_TOOLS)
            shutil.copyfile(OURS / "installed_only.py", self._tools(version) / "installed_only.py")

    def try_all(
        self, wanted: Sequence[Sequence[Combination]], interpreters: dict[str, str], *, share: bool
    ) -> dict[Combination, Outcome]:
        """Try every combination, as many at a time as there are processors.

        Args:
            wanted: the combinations, those that should be of equal content together.
            interpreters: the Pythons by version.
            share: where two environments hold the same files, run the contract suite in one of them.
        """

        def try_group(group: Sequence[Combination]) -> list[tuple[Combination, Outcome]]:
            tested: dict[str, int] = {}
            return [(item, self._try(item, interpreters[item.python], tested if share else {})) for item in group]

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(pair for group in pool.map(try_group, wanted) for pair in group)

    def check_lone_wheels(self, interpreter: str) -> list[Problem]:
        """Check that a wheel whose sibling cannot be had is refused, and that the refusal names the sibling's pin."""
        problems = []
        for name, siblings in SIBLINGS.items():
            for sibling in siblings:
                wheel = self._built[name].wheel
                python = self._create(self._work / f"lone-{name}", interpreter)
                run = _run([self._uv, "pip", "install", "--no-index", "--python", str(python), str(wheel)], 60)
                pin = f"nemo-lens-{sibling}=={self._version}"
                if run.returncode == 0 or pin not in run.stderr:
                    what = f"{wheel.name} without {pin}: uv exits with {run.returncode} and says {run.stderr.strip()}"
                    problems.append(Problem(what, f"let nemo-lens-{name} require {pin}"))
        return problems

    def _try(self, combination: Combination, interpreter: str, tested: dict[str, int]) -> Outcome:
        """Try one combination; ``tested`` holds how many tests passed on which content, and is added to."""
        started = time.monotonic()
        parts = ("+".join(combination.wheels), *combination.extras, combination.python, combination.opentelemetry)
        folder = self._work / "-".join(parts)
        passed, shared = 0, False
        try:
            python = self._create(folder, interpreter)
            self._install(combination, python)
            content = self._check_origin(combination, folder)
            if combination.extras:
                _checked([str(python), "-I", "-W", "error", str(OURS / "web_smoke.py")], 120)
            else:
                words = [str(OURS / "probe.py"), self._version, *combination.installed]
                _checked([str(python), "-I", "-W", "error", *words], 120)
                shared = content in tested
                passed = tested[content] if shared else self._contract(combination, python, folder)
                tested[content] = passed
            shutil.rmtree(folder)
        except StepError as error:
            problem = Problem(f"{combination}: {error}", f"look into the environment, which is kept: {folder}")
            return Outcome(time.monotonic() - started, problem=problem)
        return Outcome(time.monotonic() - started, passed, shared)

    def _create(self, folder: Path, interpreter: str) -> Path:
        _checked([self._uv, "venv", "-q", "--no-project", "--python", interpreter, str(folder)], 60)
        return folder / "bin" / "python"

    def _install(self, combination: Combination, python: Path) -> None:
        words = ["--python", str(python), "--constraints", str(self._siblings)]
        for name in combination.wheels:
            words.append(self._request(name, combination.extras if name == "contrib" else ()))
        if combination.opentelemetry == "floor":
            # To uv only what is asked for by name is direct; what a wheel asks for would be its newest.
            words += ["--resolution", "lowest-direct", *self._third_parties(combination)]
        self._uv_pip("install", *words)
        self._uv_pip("check", "--python", str(python))

    def _request(self, name: str, extras: Sequence[str] = ()) -> str:
        listed = f"[{','.join(extras)}]" if extras else ""
        return f"nemo-lens-{name}{listed} @ {self._built[name].wheel.as_uri()}"

    def _third_parties(self, combination: Combination) -> list[str]:
        """Return what the installed wheels require beside each other, as words of a command."""
        found = []
        for name in combination.installed:
            for requirement in self._built[name].requirements:
                wanted = requirement.marker is None or any(
                    requirement.marker.evaluate({"extra": extra}) for extra in combination.extras
                )
                if wanted and not canonicalize_name(requirement.name).startswith("nemo-lens-"):
                    found.append(f"{requirement.name}{requirement.specifier}")
        return found

    def _check_origin(self, combination: Combination, folder: Path) -> str:
        """Check that the wheels that were built are installed, no others of ours, and the OpenTelemetry meant.

        Returns:
            A digest of the names and digests of all files that are installed.
        """
        installed = {info.name.split("-")[0]: info for info in sorted(_site_packages(folder).glob("*.dist-info"))}
        ours = {name.removeprefix("nemo_lens_") for name in installed if name.startswith("nemo_lens")}
        if ours != {*combination.installed}:
            raise StepError(f"installed are {sorted(ours)}")
        for name in combination.installed:
            for path, digest in self._built[name].record.items():
                # The files themselves: no installer compares a wheel's RECORD with what it unpacks.
                if digest and record_digest((_site_packages(folder) / path).read_bytes()) != digest:
                    raise StepError(f"nemo-lens-{name} is not the wheel that was built: {path} differs")
        if combination.exports and combination.opentelemetry == "floor":
            found = installed["opentelemetry_sdk"].name.removesuffix(".dist-info").split("-")[1]
            lowest = _lowest(self._built["sdk"].requirements, "opentelemetry-sdk")
            if Version(found).release[:2] != lowest.release[:2]:
                raise StepError(f"the lowest OpenTelemetry is {lowest}, but {found} is installed")
        records = [sorted(_record(info).items()) for info in installed.values()]
        return hashlib.sha256(repr(records).encode()).hexdigest()

    def _contract(self, combination: Combination, python: Path, folder: Path) -> int:
        """Run the contract suite against what is installed; return how many tests passed."""
        tools = _site_packages(folder) / "_contract_suite_tools.pth"  # behind the environment's own packages
        tools.write_text(f"{self._tools(combination.python)}\n", encoding="utf-8")
        report = folder / "contract.xml"
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "installed_only"]
        options += [f"--junitxml={report}", f"--basetemp={folder / 'tmp'}"]
        settings = ["-c", str(self._root / "pyproject.toml"), str(self._root / "tests" / "contract")]
        _checked([str(python), "-m", "pytest", *options, *settings], 600, folder)
        suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
        skipped = int(suite.get("skipped", 0))
        passed = int(suite.get("tests", 0)) - skipped
        if not passed or (combination.exports and skipped):
            raise StepError(f"{passed} contract tests ran and {skipped} were skipped")
        return passed

    def _tools(self, python: str) -> Path:
        return self._work / f"tools-{python}"

    def _uv_pip(self, command: str, *words: str) -> None:
        _checked([self._uv, "pip", command, *(["-q"] if command == "install" else []), *words], 600)


def _site_packages(folder: Path) -> Path:
    return next(folder.glob("lib/python*/site-packages"))


def _record(info: Path) -> dict[str, str]:
    """Return the files of an installed distribution and their digests, but for what tells who installed it where."""
    with (info / "RECORD").open(encoding="utf-8", newline="") as lines:
        return {
            row[0]: row[1]
            for row in csv.reader(lines)
            if row and not row[0].startswith("../") and row[0].rpartition("/")[2] not in INSTALLER_FILES
        }


def _lowest(requirements: Sequence[Requirement], name: str) -> Version:
    specifiers = next(requirement.specifier for requirement in requirements if requirement.name == name)
    return next(Version(item.version) for item in specifiers if item.operator == ">=")


def _checked(command: list[str], timeout_s: int, folder: Path | None = None) -> None:
    try:
        run = _run(command, timeout_s, folder)
    except subprocess.TimeoutExpired as error:
        raise StepError(f"{' '.join(command)} did not end within {timeout_s} s") from error
    if run.returncode != 0:
        said = "\n".join((run.stdout + run.stderr).strip().splitlines()[-40:])
        raise StepError(f"{' '.join(command)} exits with {run.returncode}:\n{said}")


def _run(command: list[str], timeout_s: int, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    # Neither the telemetry of whoever runs this, nor the environment that he is in, belongs into a fresh one.
    ours = ("NEMO_LENS", "OTEL_", "PYTHON", "VIRTUAL_ENV", "PYTEST_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False
    )
