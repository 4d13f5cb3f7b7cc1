"""The real SLURM, started once for all tests that want it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.slurm import SlurmCluster, SlurmUnavailableError, running_slurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """Run a SLURM for the session; skip where it cannot run, except in continuous integration (``CI`` set)."""
    try:
        with running_slurm() as cluster:
            yield cluster
    except SlurmUnavailableError as reason:
        if os.environ.get("CI", "").strip():
            pytest.fail(f"no SLURM: {reason}", pytrace=False)
        pytest.skip(f"no SLURM: {reason}")
