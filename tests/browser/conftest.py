"""One browser for all tests that look at a picture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.perfetto import BrowserUnavailableError, Perfetto, running_perfetto

_SCREENSHOTS = Path(__file__).parents[2] / ".cache" / "screenshots"


@pytest.fixture(scope="session")
def perfetto() -> Iterator[Perfetto]:
    """Run a browser for the session; skip where there is none, except in continuous integration (``CI`` set)."""
    try:
        with running_perfetto() as running:
            yield running
    except BrowserUnavailableError as reason:
        if os.environ.get("CI", "").strip():
            pytest.fail(f"no browser: {reason}", pytrace=False)
        pytest.skip(f"no browser: {reason}")


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Return the folder where the pictures of the tests stay, to be looked at."""
    _SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return _SCREENSHOTS
