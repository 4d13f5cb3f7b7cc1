"""The GPU this process computes on, as NVML describes it."""

from __future__ import annotations

from collections.abc import Mapping


def detect_gpu(local_rank: int | None = None, environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """Return the attributes of this process's GPU; empty without NVML or a GPU."""
    return {}
