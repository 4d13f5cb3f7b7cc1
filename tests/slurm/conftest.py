"""The real SLURM, started once for all tests that want it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.needed import needed
from support.slurm import SlurmCluster, SlurmUnavailableError, running_slurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """Run a SLURM for the session; skip where it cannot run, except in continuous integration (``CI`` set)."""
    with needed("SLURM", SlurmUnavailableError), running_slurm() as cluster:
        yield cluster
