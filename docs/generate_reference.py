"""Write the pages of ``reference/`` that say what the code says; with ``--check``, only say whether they are stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reference_pages import attributes, command_line, environment, metrics
from reference_pages.markdown import COMMAND

FOLDER = Path(__file__).with_name("reference")

PAGES = {
    "attributes.md": attributes.lines,
    "command-line.md": command_line.lines,
    "environment.md": environment.lines,
    "metrics.md": metrics.lines,
}


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or check them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a page is stale")
    options = parser.parse_args(arguments)
    stale = [name for name in PAGES if not _is_current(name)]
    if options.check:
        for name in stale:
            sys.stderr.write(f"{FOLDER / name} is not what the code says: run {COMMAND}\n")
        return int(bool(stale))
    FOLDER.mkdir(exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(page(name), encoding="utf-8")
    return 0


def page(name: str) -> str:
    """Return the text of a page."""
    return "\n".join(PAGES[name]()) + "\n"


def _is_current(name: str) -> bool:
    path = FOLDER / name
    return path.exists() and path.read_text(encoding="utf-8") == page(name)


if __name__ == "__main__":
    sys.exit(main())
