"""The commands of the pages, run as they stand: page by page, in a fresh checkout and one shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from support.checkouts import add_environment, copy_checkout, environment
from support.doc_claims import is_tabled, shown_after
from support.doc_pages import README as OWN_TESTS
from support.doc_pages import Block, blocks, pages
from support.shown_output import unseen_lines

_MARK = "=== block"


def _commands(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.language == "bash" and not is_tabled(block)]


PAGES = [page for page in pages() if page != OWN_TESTS and _commands(page)]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("page", PAGES)
def test_its_commands_run(tmp_path: Path, page: str) -> None:
    """Every command of the page succeeds, in order, with the folder and the variables that those before left."""
    checkout = copy_checkout(tmp_path / "checkout")
    _save_programs(page, checkout)
    commands = _commands(page)
    # Where the page makes one itself, pip finds there what our wheels need; from nothing it is made for the README.
    add_environment(checkout)
    script = "".join(f"echo; echo '{_MARK}' {number}\n{block.text}" for number, block in enumerate(commands))
    (tmp_path / "page.sh").write_text(f"set -e\n{script}", encoding="utf-8")
    code, printed = _run(["bash", str(tmp_path / "page.sh")], checkout)
    parts = re.split(rf"^{_MARK} \d+\n", printed, flags=re.M)[1:]
    assert code == 0, f"{commands[len(parts) - 1]} ended with {code}\n{printed}"
    for block, part in zip(commands, parts, strict=True):
        shown = shown_after(block)
        assert shown is None or unseen_lines(shown.text, part) == [], f"{shown} is not what was printed\n{part}"


def _save_programs(page: str, folder: Path) -> None:
    """Save each Python block that begins with its file's name, such as ``# train.py``, as its reader does."""
    for block in blocks(page):
        name = re.match(r"# (\w+\.py)\b", block.opening)
        if block.language == "python" and name:
            (folder / name[1]).write_text(block.text, encoding="utf-8")


def _run(command: list[str], checkout: Path) -> tuple[int, str]:
    # To a file: what a page leaves running must not hold a pipe open.
    with (checkout.parent / "printed").open("w+", encoding="utf-8") as printed:
        process = subprocess.Popen(
            command,
            cwd=checkout,
            env=environment(checkout, {"COLUMNS": "200"}),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=180)
        finally:
            try:
                os.killpg(process.pid, signal.SIGTERM)  # its own session: what it has started, and nobody else
            except ProcessLookupError:
                pass
        printed.seek(0)
        return code, printed.read()
