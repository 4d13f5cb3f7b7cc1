"""The documentation site: built without a warning, whole, and of itself alone."""

from __future__ import annotations

import re
from pathlib import Path

from support.built_site import ROOT, Page, Site, build, outside


def test_the_build_is_clean(built: tuple[Site, str]) -> None:
    """The strict build says nothing but that it builds."""
    said = [line for line in built[1].splitlines() if line.strip()]
    assert [line for line in said if not line.startswith("INFO")] == []


def test_every_page_is_in_the_navigation(site: Site) -> None:
    """Each page of the documentation is a page of the site, and a click away in its navigation."""
    written = {page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for page in ROOT.glob("docs/**/*.md")}
    assert set(site.pages) == written
    index = site.pages["index.html"]
    linked = {to[0] for link in index.links if not link.in_body and (to := site.target(index, link.href))}
    assert written - linked == set()


def test_links_and_anchors_lead_somewhere(site: Site) -> None:
    """Every link in the pages, to pages, headings, names of the API and files, has its target."""
    assert list(site.broken()) == []


def test_examples_and_configurations_can_be_downloaded(site: Site) -> None:
    """The examples are files of the site, and each file that a page links to is the one in the checkout."""
    names = {example.name for example in (site.folder / "examples").glob("*.py")}
    assert names == {example.name for example in ROOT.glob("docs/examples/*.py")}
    for page in site.pages.values():
        for link in page.links:
            to = site.target(page, link.href)
            if to is not None and Path(to[0]).suffix in (".py", ".yaml", ".json"):
                assert (site.folder / to[0]).read_bytes() == (ROOT / "docs" / to[0]).read_bytes()


def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    """A reader's browser asks nobody else: scripts, styles, fonts and pictures come with the pages."""
    for name, page in site.pages.items():
        assert outside(page.loaded) == [], name
    for style in site.folder.rglob("*.css"):
        loaded = re.findall(r"(?:@import\s+|url\()\s*[\"']?([^\"')\s]+)", style.read_text(encoding="utf-8"))
        assert outside(loaded) == [], style


def test_what_comes_from_elsewhere_is_noticed(tmp_path: Path) -> None:
    """The check above sees scripts, pictures and styles of other hosts, also without a scheme."""
    text = "".join(
        f"<{tag}>"
        for tag in (
            'script src="https://unpkg.com/x"></script',
            'img src="//example.com/a.png"',
            'link rel="stylesheet" href="http://example.com/a.css"',
            'link rel="canonical" href="https://example.com/"',
            'img src="images/own.png"',
            'a href="https://example.com/"',
        )
    )
    (tmp_path / "index.html").write_text(text)
    page: Page = Site(tmp_path).pages["index.html"]
    assert outside(page.loaded) == ["https://unpkg.com/x", "//example.com/a.png", "http://example.com/a.css"]


def test_broken_links_are_noticed(tmp_path: Path) -> None:
    """The check of links sees a page, a picture and an anchor that are not there."""
    links = '<a href="b.html#there">x</a><a href="b.html#gone">x</a><a href="c.html">x</a><img src="gone.png">'
    (tmp_path / "a.html").write_text(links)
    (tmp_path / "b.html").write_text('<h2 id="there">There</h2><a href="#gone">x</a>')
    assert [line.partition(": ")[2] for line in Site(tmp_path).broken()] == [
        "b.html#gone: b.html has no #gone",
        "c.html: there is no c.html",
        "gone.png: there is no gone.png",
        "#gone: b.html has no #gone",
    ]


def test_the_strict_build_stops_at_what_is_broken(copied_docs: Path, tmp_path: Path) -> None:
    """A link to no page or heading, a name that the API lacks and a page that nobody listed fail the build."""
    page = copied_docs / "docs/logs.md"
    spoiled = "[a](gone.md) [b](metrics.md#gone) [c](/metrics.md) [d][nemo_lens.api.gone]\n"
    page.write_text(page.read_text(encoding="utf-8") + spoiled, encoding="utf-8")
    (copied_docs / "docs/forgotten.md").write_text("# Forgotten\n")
    done = build(tmp_path / "site", copied_docs / "mkdocs.yml")
    assert done.returncode == 1
    for what in ("- forgotten.md", "'gone.md'", "'#gone'", "absolute link '/metrics.md'", "'nemo_lens.api.gone'"):
        assert what in done.stderr, done.stderr
    assert sum(line.startswith("WARNING") for line in done.stderr.splitlines()) == 5
