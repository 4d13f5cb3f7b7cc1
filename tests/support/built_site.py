"""The documentation site as a browser sees it: its pages, their links, anchors and what they load."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]

# What a browser loads with the page: tag, attribute.
_LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "link": "href",
}
# Those of <link> that load nothing.
_NOT_LOADED = {"canonical", "prev", "next", "alternate"}


def build(folder: Path, configuration: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """Build the site strictly.

    Args:
        folder: where it goes.
        configuration: the ``mkdocs.yml``.
    """
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(configuration), "-d", str(folder)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


@dataclass
class Link:
    """A link of a page: its target as it stands there, its text, and whether it is in the body."""

    href: str
    text: str
    in_body: bool


@dataclass
class Page:
    """One page of the site."""

    path: Path
    links: list[Link] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    loaded: list[str] = field(default_factory=list)
    text: str = ""


class _Reader(HTMLParser):
    """Reads a page; the body is its ``<article>``."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page
        self._article = 0
        self._silent = 0
        self._link: Link | None = None
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._page.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self._article += tag == "article"
        self._silent += tag in ("script", "style")
        if tag == "a" and "href" in given:
            self._link = Link(given["href"], "", bool(self._article))
            self._page.links.append(self._link)
        if tag in _LOADED and given.get(_LOADED[tag]) and given.get("rel") not in _NOT_LOADED:
            self._page.loaded.append(given[_LOADED[tag]])

    def handle_endtag(self, tag: str) -> None:
        self._article -= tag == "article"
        self._silent -= tag in ("script", "style")
        if tag == "a":
            self._link = None

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        if self._link is not None:
            self._link.text += data
        if self._article:
            self._text.append(data)

    def close(self) -> None:
        super().close()
        self._page.text = "".join(self._text)


class Site:
    """A built site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def pages(self) -> dict[str, Page]:
        """The pages by their paths in the site, such as ``reference/api.html``.

        Without the one that a server shows for what it does not find: under any path, so that its links are absolute.
        """
        found = {}
        for path in sorted({*self.folder.rglob("*.html")} - {self.folder / "404.html"}):
            page = Page(path)
            reader = _Reader(page)
            reader.feed(path.read_text(encoding="utf-8"))
            reader.close()
            found[path.relative_to(self.folder).as_posix()] = page
        return found

    def target(self, page: Page, href: str) -> tuple[str, str] | None:
        """Return the path and the anchor that a link leads to; None when it leads out of the site."""
        parts = urlsplit(href)
        if parts.scheme or parts.netloc:
            return None
        to = page.path.parent / unquote(parts.path) if parts.path else page.path
        return os.path.relpath(to, self.folder), unquote(parts.fragment)

    def broken(self) -> Iterator[str]:
        """Return the links that lead nowhere, and what is loaded and is not there, in words."""
        for name, page in self.pages.items():
            for href in (*(link.href for link in page.links), *page.loaded):
                to = self.target(page, href)
                if to is None:
                    continue
                path, anchor = to
                if not (self.folder / path).is_file():
                    yield f"{name}: {href}: there is no {path}"
                elif anchor and path.endswith(".html") and anchor not in self.pages[path].anchors:
                    yield f"{name}: {href}: {path} has no #{anchor}"

    def clicks(self, start: str, *, body_only: bool = False) -> dict[str, list[str]]:
        """Return the pages that can be reached, with the texts of the links that lead there the shortest way.

        Args:
            start: path of the page to begin with.
            body_only: whether the navigation is left alone.
        """
        ways: dict[str, list[str]] = {start: []}
        queue = deque([start])
        while queue:
            name = queue.popleft()
            page = self.pages[name]
            for link in page.links:
                to = self.target(page, link.href)
                if to is None or (body_only and not link.in_body) or to[0] in ways or to[0] not in self.pages:
                    continue
                ways[to[0]] = [*ways[name], " ".join(link.text.split())]
                queue.append(to[0])
        return ways


def outside(references: Iterable[str]) -> list[str]:
    """Return those of what a page loads that come from elsewhere."""
    return [each for each in references if urlsplit(each).netloc or urlsplit(each).scheme not in ("", "data")]
