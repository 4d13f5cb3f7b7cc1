"""Show the span tree of OTLP JSON lines files, one tree for each trace, with durations, ranks and errors."""

from __future__ import annotations

import sys
from pathlib import Path

from nemo_lens.sdk.cli._forest import Forest
from nemo_lens.sdk.cli._otlp_reader import OtlpReader, expand
from nemo_lens.sdk.cli._terminal import Terminal
from nemo_lens.sdk.cli._tree_lines import tree_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``nemo-lens tree``."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="OTLP JSON lines, plain or gzip; a directory stands for the *.jsonl and *.jsonl.gz files in it, "
        "- for the standard input",
    )
    parser.add_argument("--attributes", action="store_true", help="show attributes and events below each span")


def run(arguments: argparse.Namespace) -> int:
    """Print the trees; return 1 when there was no span to print."""
    return print_trees(arguments.files, attributes=arguments.attributes)


def print_trees(paths: Sequence[str | Path], *, attributes: bool = False, quiet: bool = False) -> int:
    """Print the trees of all files together on standard output, and what was skipped on standard error.

    Args:
        paths: files and directories.
        attributes: whether attributes and events are shown.
        quiet: whether the count of skipped metric and log lines is left out.

    Returns:
        0, or 1 when no span could be read.
    """
    reader = OtlpReader(_report)
    files = expand([str(path) for path in paths], _report)
    forest = Forest(reader.read(files))
    terminal = Terminal(sys.stdout)
    for number, trace in enumerate(forest.traces):
        if number:
            terminal.line()
        for line in tree_lines(trace, forest, terminal, attributes=attributes):
            terminal.line(line)
    skipped = [f"{count} {signal} line{'' if count == 1 else 's'}" for signal, count in reader.skipped_lines.items()]
    if forest.duplicates:
        skipped.append(f"{forest.duplicates} span{'' if forest.duplicates == 1 else 's'} read twice")
    if skipped and not quiet:
        _report(f"skipped {', '.join(skipped)}")
    if not forest.traces:
        _report(f"no span found in {len(files)} file{'' if len(files) == 1 else 's'}")
        return 1
    return 0


def _report(text: str) -> None:
    sys.stdout.flush()  # in order where both streams end up in one place
    Terminal(sys.stderr).line(f"nemo-lens tree: {text}")
