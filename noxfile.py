"""The one door to everything that is run on this project: ``nox -l`` lists it, ``nox -s tests`` runs all tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = False
nox.options.download_python = "never"

# uv then trusts what the machine trusts, as pip does: behind a proxy with its own authority both work or neither does.
os.environ.setdefault("UV_SYSTEM_CERTS", "true")

ROOT = Path(__file__).parent
REPORTS = ROOT / ".cache" / "reports"

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
TORCH_PYTHON = "3.11"
TIMELINE_PYTHONS = [PYTHONS[0], PYTHONS[-1]]
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")["dependency-groups"]
API, SDK, CONTRIB = (f"packages/nemo-lens-{name}" for name in ("api", "sdk", "contrib"))
WEB = f"{CONTRIB}[fastapi,aiohttp]"
# Folders of tests/ that have a session of their own; the rest is `unit`.
OWN_SESSION = (
    "benchmarks",
    "browser",
    "compile",
    "docs",
    "docs_site",
    "gpu",
    "observability",
    "packaging",
    "ray_cluster",
    "readme",
    "receivers",
    "slurm",
    "timeline",
    "torchrun",
    "typing",
)
# What starts processes all the time, and so is slow, runs on the two ends.
PROCESS_TESTS = (
    "tests/process",
    "tests/cli",
    "tests/contrib/test_web_processes.py",
    "tests/sdk/test_nvml_bounds.py",
    "tests/sdk/test_pytest_plugin.py",
    "tests/sdk/test_pytest_plugin_docs.py",
)
# What doctor says of settings and addresses: the lowest OpenTelemetry does not change any more.
NEWEST_ALONE = ("tests/cli/test_doctor_configuration.py", "tests/cli/test_doctor_endpoints.py")
PROCESS_COMBINATIONS = (("3.10", "floor"), ("3.13", "newest"))


@nox.session(python=False)
def tests(session: nox.Session) -> None:
    """Run everything: what CI runs, on the interpreters that are here. About 21 minutes on two cores."""
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    _prepare_peers()
    for name in (
        "lint",
        *_unit_sessions(),
        *(f"process(python='{python}', opentelemetry='{version}')" for python, version in PROCESS_COMBINATIONS),
        *(f"timeline-{python}" for python in TIMELINE_PYTHONS),
        "api_alone",
        "sdk_alone",
        "packaging",
        "release",
        "receivers",
        "browser",
        "docs",
        "slurm",
        "ray",
        "readme",
        f"torch-{TORCH_PYTHON}",
        "bench",
    ):
        session.notify(name)


@nox.session(python=PYTHONS)
@nox.parametrize("opentelemetry", ["floor", "newest"])
def unit(session: nox.Session, opentelemetry: str) -> None:
    """Test the three wheels on one Python with the lowest or the newest OpenTelemetry."""
    _install_versions(session, opentelemetry)
    others = [f"--ignore={path}" for path in (*(f"tests/{folder}" for folder in OWN_SESSION), *PROCESS_TESTS)]
    _pytest(session, *(session.posargs or ("-n", "2", "--dist", "loadgroup", "tests")), *others)


@nox.session
@nox.parametrize(("python", "opentelemetry"), PROCESS_COMBINATIONS)
def process(session: nox.Session, opentelemetry: str) -> None:
    """Test forks, exits, signals, dead collectors, the command line and the pytest plug-in with real processes."""
    _install_versions(session, opentelemetry)
    others = [f"--ignore={path}" for path in NEWEST_ALONE if opentelemetry == "floor"]
    # Mostly they wait.
    _pytest(session, *(session.posargs or ("-n", "4", "--dist", "loadgroup", *PROCESS_TESTS, *others)))


@nox.session(python=TIMELINE_PYTHONS)
def timeline(session: nox.Session) -> None:
    """Test the pictures and summaries of runs, which are made by the standard library alone."""
    _install(session, "-e", API, "-e", SDK, *GROUPS["test"])
    _pytest(session, *(session.posargs or ("-n", "3", "tests/timeline")))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, the arrows between the wheels and the layers inside them."""
    groups = (name for group in ("test", "web", "lint", "dashboards") for name in GROUPS[group])
    _install(session, "-e", API, "-e", SDK, "-e", WEB, *groups)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    # Grafana's builders return typing.Self, which for an older Python is Any.
    session.run("mypy", "--python-version", "3.11", "docs/observability")
    session.run("lint-imports")
    _pytest(session, "tests/typing")


@nox.session
def pyright(session: nox.Session) -> None:
    """Check the public API with a second type checker."""
    _install(session, "-e", API, "-e", SDK, "-e", CONTRIB, "pyright")
    session.run("pyright", "tests/typing", *session.posargs)


@nox.session
def api_alone(session: nox.Session) -> None:
    """Test the built API wheel where nothing else of the project, and no OpenTelemetry, is installed."""
    _install(session, *_build(session, API), *GROUPS["test"])
    _pytest(
        session, *(session.posargs or ("-n", "2", "tests/api", "tests/contract", "tests/packaging/test_api_alone.py"))
    )


@nox.session
def sdk_alone(session: nox.Session) -> None:
    """Test the built API and SDK wheels without the contrib wheel."""
    _install(session, *_build(session, API, SDK), *GROUPS["test"], *GROUPS["peers"])
    commands = ("tests/cli/test_commands.py", "tests/cli/test_demo.py", "tests/cli/test_doctor_installation.py")
    others = [f"--ignore={path}" for path in PROCESS_TESTS if path.startswith("tests/sdk/")]
    _pytest(session, *(session.posargs or ("-n", "2", "tests/contract", "tests/sdk", *commands)), *others)


@nox.session
def packaging(session: nox.Session) -> None:
    """Build the wheels and source distributions and check what is in them."""
    _install(session, "-e", API, "-e", SDK, *GROUPS["test"], *GROUPS["packaging"])
    _pytest(session, *(session.posargs or ("tests/packaging",)))


@nox.session
def release(session: nox.Session) -> None:
    """Build, verify and install everywhere what would be published; `-- --final` before it is. Uploads nothing."""
    session.install(*GROUPS["release"])
    session.run("python", "-m", "release", *session.posargs)


@nox.session
def receivers(session: nox.Session) -> None:
    """Send all signals to a third party's receivers, the real Collector and a database; ask the dashboards' queries."""
    _install(session, "-e", API, "-e", SDK, *GROUPS["test"], *GROUPS["receivers"], *GROUPS["dashboards"])
    _pytest(session, *(session.posargs or ("-n", "2", "--dist", "loadfile", "tests/receivers", "tests/observability")))


@nox.session
def browser(session: nox.Session) -> None:
    """Look at timelines in a real Perfetto in a real Chromium. Needs `chromium`; keeps its pictures in .cache."""
    _install(session, "-e", API, "-e", f"{SDK}[view]", *GROUPS["test"], *GROUPS["browser"])
    _pytest(session, *(session.posargs or ("tests/browser",)))


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site strictly into `site`; test its links and names, and run what its pages say."""
    groups = (name for group in ("test", "web", "peers", "docs") for name in GROUPS[group])
    _install(session, "-e", API, "-e", SDK, "-e", WEB, *groups)
    session.run("python", "docs/generate_reference.py", "--check")
    # Not --quiet: what is not said is not counted, and nothing would fail.
    session.run("mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    _pytest(session, *(session.posargs or ("-n", "3", "--dist", "loadfile", "tests/docs_site", "tests/docs")))


@nox.session
def screenshots(session: nox.Session) -> None:
    """Make the pictures of the guides anew. No part of `tests`."""
    _install(session, "-e", API, "-e", f"{SDK}[view]", *GROUPS["browser"])
    session.run("python", "docs/make_screenshots.py")


@nox.session
def slurm(session: nox.Session) -> None:
    """Run jobs on a real SLURM that the tests start on loopback. Needs root and SLURM's programs."""
    _install(session, "-e", API, "-e", SDK, *GROUPS["test"])
    _pytest(session, *(session.posargs or ("tests/slurm",)))


@nox.session(python=TORCH_PYTHON)
def ray(session: nox.Session) -> None:
    """Trace tasks and actors of a real Ray, in a network of its own. Downloads Ray."""
    _install(session, "-e", API, "-e", SDK, "-e", f"{CONTRIB}[ray,fastapi,aiohttp]", *GROUPS["test"], *GROUPS["web"])
    _pytest(session, *(session.posargs or ("-n", "2", "--dist", "loadfile", "tests/ray_cluster")))


@nox.session
def readme(session: nox.Session) -> None:
    """Run every command and example of the README as it stands."""
    _install(session, "-e", API, "-e", SDK, *GROUPS["test"], "nox")
    _pytest(session, *(session.posargs or ("tests/readme",)))


# pip rather than uv: torch's index serves the build without CUDA to pip's default resolution.
@nox.session(python=TORCH_PYTHON, venv_backend="virtualenv")
def torch(session: nox.Session) -> None:
    """Compile spans with torch.compile, and launch ranks with a real torchrun. Downloads torch."""
    _install(session, "-e", API, "-e", SDK, "-e", CONTRIB, *GROUPS["test"], *GROUPS["torch"])
    _pytest(session, *(session.posargs or ("-n", "2", "--dist", "loadfile", "tests/compile", "tests/torchrun")))


@nox.session
def gpu(session: nox.Session) -> None:
    """Check what only a machine with an NVIDIA GPU can show. No part of `tests`."""
    _install(session, "-e", API, "-e", f"{SDK}[gpu]", "-e", CONTRIB, *GROUPS["test"], *GROUPS["torch"])
    _pytest(session, *(session.posargs or ("tests/gpu",)))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure the budgets side by side, print the ratios, fail past a limit."""
    _install(session, "-e", API, "-e", SDK, "-e", WEB, *GROUPS["test"], *GROUPS["web"])
    _pytest(session, *(session.posargs or ("tests/benchmarks",)))


def _install_versions(session: nox.Session, opentelemetry: str) -> None:
    wheels = ("-e", API, "-e", SDK, "-e", WEB)
    if opentelemetry == "newest":
        _install(session, *wheels, *GROUPS["test"], *GROUPS["web"], *GROUPS["peers"])
    elif session.venv_backend != "uv":
        session.skip("the lowest OpenTelemetry is resolved by uv: pip install uv")
    else:
        _install(session, "--resolution=lowest-direct", *wheels)
        _install(session, *wheels, *GROUPS["test"], *GROUPS["web"], *GROUPS["floor_peers"])


def _install(session: nox.Session, *what: str) -> None:
    # One command: OpenTelemetry's packages, installed step by step, end as a mix of versions that does not work.
    session.install(*what)


def _build(session: nox.Session, *packages: str) -> list[str]:
    """Build the wheels of ``packages`` and return their paths."""
    session.install(*GROUPS["packaging"])
    wheels = Path(session.create_tmp()) / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    for package in packages:
        with session.chdir(package):
            session.run("python", "-m", "hatchling", "build", "-t", "wheel", "-d", str(ROOT / wheels), silent=True)
    return [str(wheel) for wheel in sorted((ROOT / wheels).glob("*.whl"))]


def _pytest(session: nox.Session, *args: str) -> None:
    """Run pytest and leave its results where ``.ci/run`` adds them up."""
    report = REPORTS / f"{session.name}.xml"
    session.run("python", "-m", "pytest", f"--junitxml={report}", *args)


def _unit_sessions() -> list[str]:
    """Return the lowest OpenTelemetry on the oldest Python, and the newest on the others.

    `release` runs the contract suite on each Python with both.
    """
    oldest, *others = PYTHONS
    return [f"unit-{oldest}(opentelemetry='floor')", *(f"unit-{python}(opentelemetry='newest')" for python in others)]


def _prepare_peers() -> None:
    """Start making the programs that tests talk to now; `receivers` waits for what is under way."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.peer_programs import PEERS, build_command  # only this session needs the test support

    for peer in PEERS:
        log = (REPORTS / f"{peer}-build.log").open("wb")
        subprocess.Popen(build_command(peer), stdout=log, stderr=log, env=os.environ.copy(), start_new_session=True)
