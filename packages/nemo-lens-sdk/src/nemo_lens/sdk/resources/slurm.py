"""The SLURM job this process belongs to."""

from __future__ import annotations

from collections.abc import Mapping


def detect_slurm(environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """Return the attributes of the SLURM job; empty outside one."""
    return {}
