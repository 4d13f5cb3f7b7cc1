"""``nemo-lens doctor`` run in a process of its own, in an environment that holds nothing of this one's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import nemo_lens.api
import nemo_lens.sdk

_ON = {"NEMO_LENS_ENABLED": "1", "NEMO_LENS_LOGS_ENABLED": "1"}


@dataclass(frozen=True)
class Run:
    """A run with ``--json``."""

    code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        """The one JSON object that standard output holds."""
        report: dict[str, Any] = json.loads(self.stdout)
        return report

    def findings(self, code: str) -> list[dict[str, Any]]:
        """Return the findings of a code."""
        return [finding for finding in self.report["findings"] if finding["code"] == code]

    def finding(self, code: str) -> dict[str, Any]:
        """Return the one finding of a code."""
        found = self.findings(code)
        assert len(found) == 1, (code, self.report["findings"])
        return found[0]

    def problems(self) -> list[str]:
        """Return the codes of the problems."""
        return [finding["code"] for finding in self.report["findings"] if finding["level"] == "problem"]

    def outcomes(self) -> dict[str, str]:
        """Return what came of each signal."""
        return {way["signal"]: way["outcome"] for way in self.report["endpoints"]}

    def setting(self, name: str) -> dict[str, Any]:
        """Return a setting."""
        (setting,) = [each for each in self.report["configuration"]["settings"] if each["name"] == name]
        return dict(setting)

    def attribute(self, name: str) -> tuple[Any, str]:
        """Return a resource attribute and its origin."""
        (row,) = [each for each in self.report["surroundings"]["resource"] if each["name"] == name]
        return row["value"], row["origin"]


def environment(**variables: str) -> dict[str, str]:
    """Return an environment with these variables and what a process cannot do without."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV") if name in os.environ}
    return {**kept, "PYTHONIOENCODING": "utf-8", **variables}


def run_text(
    *options: str, python: tuple[str, ...] = (), cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``nemo-lens doctor``, by default switched on and with all signals.

    Args:
        *options: its arguments.
        python: arguments of the interpreter; default the command.
        cwd: where to run it.
        **variables: its environment.
    """
    command = [sys.executable, *(python or ("-m", "nemo_lens.sdk.cli")), "doctor", *options]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment(**{**_ON, **variables}),
        cwd=cwd,
        timeout=55,
        check=False,
    )


def doctor(*options: str, python: tuple[str, ...] = (), cwd: Path | None = None, **variables: str) -> Run:
    """Run ``nemo-lens doctor --json`` as ``run_text`` does."""
    done = run_text("--json", *options, python=python, cwd=cwd, **variables)
    assert done.returncode in (0, 1), done.stderr
    return Run(done.returncode, done.stdout, done.stderr)


def copy_wheels(folder: Path, *, metadata: bool) -> tuple[str, ...]:
    """Lay the API and the SDK out in a folder of their own, without what they depend on.

    Returns:
        The interpreter's arguments that run the command from there, and find no other package than those.
    """
    for module in (nemo_lens.api, nemo_lens.sdk):
        source = Path(module.__file__ or "").parent
        shutil.copytree(source, folder / "nemo_lens" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("nemo-lens-api", "nemo-lens-sdk") if metadata else ():
        found = distribution(name)
        info = folder / f"{name.replace('-', '_')}-{found.version}.dist-info"
        info.mkdir()
        for item in ("METADATA", "entry_points.txt"):
            text = found.read_text(item)
            if text is not None:
                (info / item).write_text(text, encoding="utf-8")
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); from nemo_lens.sdk.cli import main; sys.exit(main())"
    return ("-S", "-c", start)


def install(site: Path, name: str, code: str, entry_points: str, requires: tuple[str, ...] = ()) -> None:
    """Lay out a distribution ``name`` 1.2 with one module of that name."""
    (site / f"{name}.py").write_text(code, encoding="utf-8")
    info = site / f"{name}-1.2.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.2", *(f"Requires-Dist: {each}" for each in requires)]
    (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")
