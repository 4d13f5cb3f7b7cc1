"""What the tests of the documentation share."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.symptoms import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Give what runs programs that have a symptom, and programs that are cured of it."""
    return Lab(tmp_path)
