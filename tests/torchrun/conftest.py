"""Makes ``torchrun_runs`` importable, and gives each test a folder its ranks write to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.written import Written

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Give the telemetry that the ranks of this test wrote to files."""
    return Written(tmp_path)
