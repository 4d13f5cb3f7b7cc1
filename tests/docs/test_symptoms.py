"""Each symptom of the troubleshooting page has the test that reproduces it."""

from __future__ import annotations

from collections import Counter

import pytest

from support.doc_pages import all_blocks
from support.symptoms import PAGE, Symptom, matches, reproduced, symptoms


def test_every_symptom_is_reproduced() -> None:
    """A heading of the page that no test reproduces is an error, and so is a test of a heading that is gone."""
    assert len(symptoms()) > 40
    assert sorted(symptoms()) == sorted(reproduced()), "mark one test of a test_symptom*.py with @symptom(heading)"
    assert [heading for heading, times in Counter(symptoms()).items() if times > 1] == []


def test_what_is_quoted_is_under_a_symptom() -> None:
    """Nothing is quoted or advised where no test looks."""
    known = {*symptoms(), "Nothing arrives", "Troubleshooting"}
    blocks = [block for block in all_blocks() if block.page == PAGE]
    assert [str(block) for block in blocks if block.heading not in known] == []


@pytest.mark.parametrize(
    ("quoted", "line", "same"),
    [
        ("N spans were dropped", "WARNING:nemo_lens:3000 spans were dropped: the", True),
        ("N spans were dropped", "some spans were dropped", False),
        ("to <host and port> (404)", "x to 127.0.0.1:9 (404)", True),
        ("to <host and port> (404)", "to  (404)", False),
        ("RANK is 1", "RANK is 2", False),
    ],
)
def test_placeholders(quoted: str, line: str, same: bool) -> None:
    """``N`` stands for a number and ``<name>`` for some text; all else is what it is."""
    assert matches(quoted, line) is same


def test_a_quotation_that_is_not_printed_is_an_error() -> None:
    """What a test has not seen printed, or not tried, fails it; so does a message that the cure leaves."""
    case = Symptom("Telemetry is off")
    with pytest.raises(AssertionError, match="none of"):
        case.seen("telemetry is on")
    with pytest.raises(AssertionError, match="quoted and never printed"):
        case.finish()
    said = "  ✗ problem  telemetry is off: NEMO_LENS_ENABLED is not set"
    case.seen(said)
    with pytest.raises(AssertionError, match="advised and never tried"):
        case.finish()
    with pytest.raises(AssertionError, match="still said"):
        case.absent(said)
    assert case.cure() == "export NEMO_LENS_ENABLED=1\n"
    case.finish()
