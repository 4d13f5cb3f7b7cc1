"""Write ``dashboards/*.json`` and the tables of ``dashboards.md``; with ``--check``, only say what is stale."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from dashboards_source import grafana, inference, page, rl, telemetry_health, training

FOLDER = Path(__file__).resolve().parent / "dashboards"
PAGE = FOLDER.with_name("dashboards.md")
COMMAND = "python docs/observability/make_dashboards.py"
BOARDS = (training.BOARD, rl.BOARD, inference.BOARD, telemetry_health.BOARD)


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or check them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a file is stale")
    options = parser.parse_args(arguments)
    stale = [(path, text) for path, text in written() if not path.exists() or path.read_text("utf-8") != text]
    for path, text in stale:
        if options.check:
            sys.stderr.write(f"{path} is not what docs/observability/dashboards_source says: run {COMMAND}\n")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(options.check and bool(stale))


def written() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of each file that this writes."""
    for board in BOARDS:
        yield FOLDER / page.file_name(board), grafana.rendered(board, BOARDS)
    yield PAGE, page.with_tables(PAGE.read_text(encoding="utf-8"), BOARDS, COMMAND)


if __name__ == "__main__":
    sys.exit(main())
