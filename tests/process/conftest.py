"""Makes ``process_runs`` importable, and gives each test a folder its processes write to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from process_runs import Written


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Give the telemetry that the processes of this test wrote to files."""
    from process_runs import Written  # after the path is set

    return Written(tmp_path)
