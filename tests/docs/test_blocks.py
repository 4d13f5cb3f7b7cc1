"""Every fenced block of every page is run, parsed, or accounted for by name."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from support.doc_claims import (
    CLAIMS,
    INSTALLS,
    NOT_RUN,
    PAGE_CLAIMS,
    claim_of,
    functions_of,
    how_accounted,
    is_tabled,
    reads,
    reason_of,
)
from support.doc_pages import ROOT, Block, all_blocks, pages
from support.shown_output import unseen_lines

tomllib = pytest.importorskip("tomllib", reason="Python 3.11 and later")

_WHAT_TO_DO = """
Nobody takes care of these blocks. For each, do the first of these that can be done:
- make it ```python, which is run as it stands with telemetry on, or ```bash, whose commands are run in a fresh
  checkout, with those before it on the page;
- when it shows what the ```python or ```bash block right before it prints, put no other block between them: they are
  compared, numbers aside, and a line `...` stands for what is left out;
- make it ```yaml, ```json or ```toml, when it is data;
- write a test that reads the block from its page and runs it, and name it in CLAIMS of tests/support/doc_claims.py;
- say in NOT_RUN of that module what it would take to run it."""


def test_every_block_is_accounted_for() -> None:
    """A block that no test runs, parses or claims is an error that says what to do about it."""
    forgotten = [str(block) for block in all_blocks() if how_accounted(block) is None]
    assert not forgotten, "\n".join([*forgotten, _WHAT_TO_DO])


def test_a_new_block_is_noticed() -> None:
    """A fragment that a page gets, and text that follows no command, are nobody's."""
    for language in ("text", "sh", "py", "console", ""):
        assert how_accounted(Block("docs/logs.md", 1, language, "Logs", "curl http://collector:4318\n")) is None


def test_output_is_compared() -> None:
    """Numbers, ids and blanks may differ and lines may be left out; other text and another order may not."""
    printed = "run 12  ok\n  trace 4bf92f3577b34da6\nleft out\ndone: 3 spans\n"
    assert unseen_lines("run 7 ok\n...\ntrace 0af7651916cd43dd\ndone: ... spans", printed) == []
    assert unseen_lines("run 7 failed\ndone: 3 spans\nrun 12 ok", printed) == ["run 7 failed", "run 12 ok"]


def test_every_claim_is_of_a_block_and_by_a_test() -> None:
    """No table names a block that is gone, or a test that is gone."""
    everything = all_blocks()
    stale = [
        opening for opening in (*CLAIMS, *NOT_RUN) if not any(block.opening.startswith(opening) for block in everything)
    ]
    assert not stale, f"no block opens like this any more; take it out of tests/support/doc_claims.py: {stale}"
    assert [page for page in PAGE_CLAIMS if page not in pages()] == []
    claims = {*CLAIMS.values(), *(test for _, test in PAGE_CLAIMS.values())}
    missing = [
        claim for claim in sorted(claims) if claim.partition("::")[2] not in functions_of(claim.partition("::")[0])
    ]
    assert not missing, f"there is no such test: {missing}"
    blind = [f"{block}: {claim}" for block in everything if (claim := claim_of(block)) and not reads(claim, block)]
    assert not blind, f"the test does not read the page: {blind}"


def test_claims_are_needed_and_clear() -> None:
    """A block is claimed by one entry, and either claimed or not run."""
    for block in all_blocks():
        named = [opening for opening in (*CLAIMS, *NOT_RUN) if block.opening.startswith(opening)]
        assert len(named) <= 1, f"{block} is named by {named}"
        assert claim_of(block) is None or reason_of(block) is None, block


def test_what_is_not_run_is_little(capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks that no test runs are few, and printed with their reasons."""
    blocks = [(block, reason) for block in all_blocks() if (reason := reason_of(block)) is not None]
    with capsys.disabled():
        for block, reason in blocks:
            print(f"\nnot run: {block}: {reason}", end="")
    assert len(blocks) <= 8


def _wheels() -> dict[str, set[str]]:
    """Return the extras of each wheel, by its name."""
    projects = [
        tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in ROOT.glob("packages/*/pyproject.toml")
    ]
    return {project["name"]: set(project.get("optional-dependencies", {})) for project in projects}


def test_what_is_installed_exists() -> None:
    """Where a page installs a wheel, from an index or from the checkout, there is that wheel, and that extra."""
    extras = _wheels()
    assert set(extras) == {"nemo-lens-api", "nemo-lens-sdk", "nemo-lens-contrib"}
    found = []
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, extra in re.findall(r"pip install [^\n`]*?(nemo-lens-\w+)(?:\[([\w,-]+)\])?", text):
            found.append(name)
            assert name in extras, f"{page} installs {name}"
            unknown = {each for each in extra.split(",") if each} - extras[name]
            assert not unknown, f"{page} installs {name} with extras that it has not: {unknown}"
    assert found
    assert all(INSTALLS.match(line) for line in ("pip install 'nemo-lens-sdk[view]'", "pip install nemo-lens-api"))


def _parse(language: str, text: str) -> Any:
    if language == "yaml":
        return list(yaml.safe_load_all(text))
    return json.loads(text) if language == "json" else tomllib.loads(text)


@pytest.mark.parametrize("block", all_blocks("yaml", "json", "toml"), ids=lambda block: block.place)
def test_data_parses(block: Any) -> None:
    """YAML, JSON and TOML are what they say, and not empty."""
    if is_tabled(block):
        pytest.skip(f"claimed by {claim_of(block) or reason_of(block)}")
    assert _parse(block.language, block.text)
