"""Names of the files that the ``file`` exporter writes.

A pattern may hold ``{run_id}``, ``{rank}`` (``x`` when unknown), ``{pid}`` and ``{signal}``; ``{{`` and ``}}`` are
braces. A relative pattern starts at the folder that is current at setup, ``~`` is the home folder. Without ``{pid}`` a
forked child puts its own before the extensions: ``trace.jsonl.gz`` becomes ``trace.4711.jsonl.gz``. Processes that
set up on their own want ``{pid}`` or ``{rank}`` in the pattern, or share the file; without ``{signal}`` the signals do.
"""

from __future__ import annotations

import os
import re
import string
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_lens.api._diagnostics import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from nemo_lens.sdk.exporters._plan import Signal

DEFAULT_PATTERN = "./nemo-lens/{run_id}/{signal}-rank{rank}-{pid}.jsonl"

_PLACEHOLDERS = ("run_id", "rank", "pid", "signal")
_MAX_RUN_ID_BYTES = 128


def parse(pattern: str, *, signal: Signal, run_id: str, rank: int | None) -> Callable[[int | str, bool], Path]:
    """Return the function from a process id, and whether that process was forked since, to its absolute path.

    What is given in place of a process id stands in the path as it is.

    Raises:
        ValueError: A placeholder is not known, the braces are not balanced, or the pattern is relative to a working
            directory that is gone.
    """
    used = _placeholders(pattern)
    known = {"run_id": safe_name(run_id), "rank": "x" if rank is None else str(rank), "signal": signal}
    here = Path() if os.path.isabs(os.path.expanduser(pattern)) else _working_directory()  # noqa: PTH111, PTH117

    def name_of(pid: int | str, forked: bool) -> Path:
        path = here / Path(pattern.format(**known, pid=pid)).expanduser()
        return _with_pid(path, pid) if forked and "pid" not in used else path

    return name_of


def safe_name(run_id: str) -> str:
    """Return a run id as part of a file name: it cannot name another folder, hide the file or be too long."""
    name = re.sub(r"[^\w.=+@-]", "_", run_id).encode()[:_MAX_RUN_ID_BYTES].decode(errors="ignore")
    bare = name.lstrip(".")
    return "_" * (len(name) - len(bare)) + bare or "_"


def check_writable(path: Path) -> None:
    """Raise when a file cannot be created there or appended to, creating nothing.

    Raises:
        ValueError: A folder on the way is a file or may not be written to, or ``path`` is a folder.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder, expected the name of a file")
    existing = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if existing != path and not existing.is_dir():
        raise ValueError(f"{path.parent} cannot be created: {existing} is no folder")
    if not os.access(existing, os.W_OK if existing == path else os.W_OK | os.X_OK):
        raise ValueError(f"{path} cannot be written: no permission for {existing}")


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError as fault:
        raise ValueError(
            f"the name is relative, and the working directory is gone or out of reach ({fault.strerror}): start from "
            "one that is there, or set NEMO_LENS_FILE_PATH to an absolute path"
        ) from None


def _placeholders(pattern: str) -> set[str]:
    accepted = f"expected no placeholders but {', '.join(f'{{{each}}}' for each in _PLACEHOLDERS)}"
    try:
        parts = list(string.Formatter().parse(pattern))
    except ValueError as fault:
        raise ValueError(f"{fault}; {accepted}, and {{{{ and }}}} for braces") from None
    used = {name for _, name, _, _ in parts if name is not None}
    for _, name, layout, conversion in parts:
        if name is not None and (name not in _PLACEHOLDERS or layout or conversion):
            shown = f"{{{name}{'!' + conversion if conversion else ''}{':' + layout if layout else ''}}}"
            raise ValueError(f"{shown} is not known; {accepted}{nearest(name, _PLACEHOLDERS)}")
    return used


def _with_pid(path: Path, pid: int | str) -> Path:
    end = path.suffix if path.suffix != ".gz" else Path(path.stem).suffix + ".gz"
    return path.with_name(f"{path.name.removesuffix(end)}.{pid}{end}")
