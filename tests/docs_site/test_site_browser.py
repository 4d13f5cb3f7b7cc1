"""The site in a real browser, from a disk: nothing is asked of a network, the search works, pages fit the window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.built_site import Site
from support.chromium import BrowserUnavailableError, running_chromium
from support.needed import needed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DESKTOP, PHONE = 1280, 400
PAGES = ("index.html", "slurm.html", "reference/api.html", "reference/environment.html", "reference/metrics.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium; where there is none the tests are skipped, except in continuous integration (``CI`` set)."""
    with needed("browser", BrowserUnavailableError), running_chromium() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of the browser that fails the test when it asks a network, or its scripts fail."""
    page = browser.new_page(viewport={"width": DESKTOP, "height": 900})
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    yield page
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:"))] == []
    assert failed == []


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_window(page: Page, site: Site, name: str, width: int) -> None:
    """Wide tables and blocks scroll by themselves: the page is not wider than a desktop's or a phone's window."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto((site.folder / name).as_uri())
    page.wait_for_selector("article h1")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("start", ["index.html", "reference/api.html"])
def test_the_search_works_from_a_disk(page: Page, site: Site, start: str) -> None:
    """Who has unpacked the site finds the page about SLURM by searching for it."""
    page.goto((site.folder / start).as_uri())
    page.wait_for_function("document.querySelector('.md-search__form').getAttribute('data-md-state') !== 'loading'")
    page.click(".md-search__input")
    page.keyboard.type("SLURM", delay=20)
    # A locator looks again when the list is drawn anew in the meantime.
    page.locator(".md-search-result__link[href*='slurm.html']").first.click(timeout=20_000)
    page.wait_for_url("**/slurm.html*")
