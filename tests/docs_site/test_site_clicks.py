"""Someone who knows OpenTelemetry, but not this project, finds the answer from the front page."""

from __future__ import annotations

import re

import pytest

from support.built_site import Site

MOST_CLICKS = 3

# Question, the page that answers, what stands there, what the last link on the way there says.
QUESTIONS = [
    ("how to instrument a library", "instrumentation.html", r"managed_span\(", r"(?i)instrument"),
    ("how to switch exporting on under SLURM", "slurm.html", r"export NEMO_LENS_ENABLED=1", r"SLURM"),
    ("why nothing arrives", "troubleshooting.html", r"(?i)nothing arrives", r"(?i)arrives|troubleshoot"),
    ("what a span costs", "cost.html", r"(?i)\b(ns|nanoseconds)\b", r"(?i)costs?\b"),
]


@pytest.mark.parametrize(("page", "answer", "says"), [row[1:] for row in QUESTIONS], ids=[row[0] for row in QUESTIONS])
@pytest.mark.parametrize("body_only", [False, True], ids=["any link", "body"])
def test_three_clicks_answer(site: Site, page: str, answer: str, says: str, body_only: bool) -> None:
    """Three clicks or fewer lead there, by the navigation and by the text alone, and the last link says so."""
    ways = site.clicks("index.html", body_only=body_only)
    assert page in ways, f"no way leads to {page}"
    assert len(ways[page]) <= MOST_CLICKS, ways[page]
    assert re.search(says, ways[page][-1]), ways[page]
    assert re.search(answer, site.pages[page].text), f"{page} does not say it"


def test_everything_is_within_three_clicks_of_the_text(site: Site) -> None:
    """A reader who follows the text alone gets to every page."""
    ways = site.clicks("index.html", body_only=True)
    assert sorted(set(site.pages) - set(ways)) == []
    assert max(map(len, ways.values())) <= MOST_CLICKS
