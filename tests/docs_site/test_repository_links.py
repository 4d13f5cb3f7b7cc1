"""Links of the Markdown that is read in the repository, and not on the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.built_site import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("packages/*/README.md"))]

_FENCE = re.compile(r"^(```|~~~).*?^\1", flags=re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_relative_links_lead_somewhere(page: Path) -> None:
    """Files and headings that README, CONTRIBUTING and the others link to are there."""
    assert list(broken_links(page)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """The test above sees a file and a heading that are not there, and nothing in code."""
    page = tmp_path / "README.md"
    page.write_text(
        "# Some `code`, once\n[a](#some-code-once) [b](x.md) [c](README.md#y) [d](https://e)\n```\n[e](f)\n```\n"
    )
    assert list(broken_links(page)) == ["x.md", "README.md#y"]


def broken_links(page: Path) -> Iterator[str]:
    """Return the relative links that lead nowhere."""
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in slugs(target)):
            yield link


def slugs(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Git hosts make them."""
    headings = re.findall(r"^#+ +(.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
