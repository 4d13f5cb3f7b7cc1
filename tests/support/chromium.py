"""The Chromium of the machine, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The sandbox needs what containers lack; the rest keeps the browser itself from the network.
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_NAMES = ("chromium", "chromium-browser", "google-chrome")


class BrowserUnavailableError(Exception):
    """There is no Chromium, or not what drives it, or no viewer."""


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run a Chromium while the block runs.

    Raises:
        BrowserUnavailableError: Something that this needs is not installed.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise BrowserUnavailableError("playwright is not installed: pip install playwright") from None
    chromium = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if chromium is None:
        raise BrowserUnavailableError("no Chromium: apt-get install chromium fonts-dejavu-core")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
