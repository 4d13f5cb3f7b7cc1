"""Copies of the working tree as a newcomer clones it, with or without an environment, and a shell to work in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

from support.all_signals import clean_environ
from support.doc_pages import ROOT


def copy_checkout(target: Path) -> Path:
    """Copy what git tracks, or would, to ``target``."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source = ROOT / name
        if source.is_file():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)
    return target


def add_environment(checkout: Path) -> Path:
    """Make ``.venv`` in a checkout, with all that the present environment has installed, in a moment.

    It is an environment of its own: what a command installs there does not reach the present one.
    """
    folder = checkout / ".venv"
    venv.create(folder, symlinks=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    present = sysconfig.get_path("purelib")
    (own / "present.pth").write_text(f"import site; site.addsitedir({present!r})\n", encoding="utf-8")
    bin_folder, python = Path(sysconfig.get_path("scripts")), folder / "bin" / "python"
    for script in bin_folder.iterdir():
        target = folder / "bin" / script.name
        if target.exists() or not script.is_file() or not _is_python_script(script):
            continue
        _, _, rest = script.read_text(encoding="utf-8").partition("\n")
        target.write_text(f"#!{python}\n{rest}", encoding="utf-8")
        target.chmod(0o755)
    return folder


def environment(checkout: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a reader's environment: nothing of telemetry set, ``.venv/bin`` first on ``PATH``."""
    path = (str(checkout / ".venv" / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])
    environ = clean_environ({"PATH": os.pathsep.join(path), **(extra or {})})
    environ.pop("VIRTUAL_ENV", None)
    return environ


def _is_python_script(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(4096)
    return first.startswith(b"#!") and b"python" in first
