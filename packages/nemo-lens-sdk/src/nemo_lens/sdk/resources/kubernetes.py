"""The Kubernetes pod this process runs in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def detect_kubernetes(environ: Mapping[str, str] | None = None, root: str | Path = "/") -> dict[str, str | int]:
    """Return the attributes of the pod; empty outside one."""
    return {}
