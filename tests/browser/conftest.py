"""One browser for all tests that look at a picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.chromium import BrowserUnavailableError
from support.needed import needed
from support.perfetto import Perfetto, running_perfetto

_SCREENSHOTS = Path(__file__).parents[2] / ".cache" / "screenshots"


@pytest.fixture(scope="session")
def perfetto() -> Iterator[Perfetto]:
    """Run a browser for the session; skip where there is none, except in continuous integration (``CI`` set)."""
    with needed("browser", BrowserUnavailableError), running_perfetto() as running:
        yield running


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Return the folder where the pictures of the tests stay, to be looked at."""
    _SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return _SCREENSHOTS
