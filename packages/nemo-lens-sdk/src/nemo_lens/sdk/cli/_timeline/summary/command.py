"""The part of ``nemo-lens timeline`` that ``--summary`` asks for."""

from __future__ import annotations

import json
import sys

from nemo_lens.api._diagnostics import nearest
from nemo_lens.sdk.cli._otlp_reader import OtlpReader
from nemo_lens.sdk.cli._terminal import Terminal, printable
from nemo_lens.sdk.cli._timeline.summary.document import summary_json
from nemo_lens.sdk.cli._timeline.summary.numbers import UnknownStepError, summarize
from nemo_lens.sdk.cli._timeline.summary.span_table import SpanTable
from nemo_lens.sdk.cli._timeline.summary.table import summary_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from nemo_lens.sdk.cli._progress import ProgressLine

# Spans between two looks at the progress line.
_SPANS_A_LOOK = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the summary."""
    parser.add_argument(
        "--summary",
        action="store_true",
        help="print which rank is slow and in which phase, and the times of each span name; draws nothing without -o",
    )
    parser.add_argument("--json", action="store_true", help="with --summary: one JSON object")
    parser.add_argument(
        "--step",
        metavar="NAME",
        help="with --summary: the name of the spans that are steps (default: those with dl.iteration, or whose name "
        "ends in step; the outermost)",
    )


def contradiction(arguments: argparse.Namespace) -> str:
    """Return what is wrong with these arguments, or nothing."""
    if not arguments.summary:
        for name in ("json", "step"):
            if getattr(arguments, name):
                return f"--{name} goes with --summary"
    elif arguments.with_profiler and not arguments.output:
        return "--with-profiler draws a trace: with --summary it takes -o, too"
    elif arguments.output == "-":
        return "the summary and the trace cannot both go to the standard output: -o takes a file here"
    return ""


def read_table(files: Sequence[Path], report: Callable[[str], None], progress: ProgressLine) -> SpanTable:
    """Read the spans of all files.

    Args:
        files: OTLP JSON lines.
        report: takes a line about each thing that cannot be read.
        progress: shows how far it is.
    """
    table = SpanTable()
    reader = OtlpReader(report)
    total = sum(path.stat().st_size for path in files if path.is_file())
    with progress:
        for number, span in enumerate(reader.read(files)):
            table.add(span)
            if number % _SPANS_A_LOOK == 0:
                progress.bar(f"reading {len(files)} files", getattr(reader, "bytes_read", 0), total)
    return table


def print_summary(
    table: SpanTable, report: Callable[[str], None], *, step: str | None = None, as_json: bool = False
) -> int:
    """Print the summary on standard output.

    Args:
        table: the spans.
        report: takes a line about what is wrong.
        step: the name of the spans that are steps.
        as_json: whether it is one JSON object.

    Returns:
        0, or 1 when there is no span, or none of that name.
    """
    if not table.names:
        report("no span with a duration: nothing to sum up")
        return 1
    try:
        summary = summarize(table, step)
    except UnknownStepError:
        report(f"--step: no span is named {printable(step)!r}{nearest(str(step), table.names)}")
        return 1
    left_out = [
        f"{number} span{'' if number == 1 else 's'} {what}"
        for number, what in ((summary.duplicates, "read twice"), (summary.without_duration, "without a duration"))
        if number
    ]
    if left_out:
        report(f"left out {', '.join(left_out)}")
    if as_json:
        json.dump(summary_json(summary), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return 0
    terminal = Terminal(sys.stdout)
    for line in summary_lines(summary, terminal):
        terminal.line(line)
    return 0
