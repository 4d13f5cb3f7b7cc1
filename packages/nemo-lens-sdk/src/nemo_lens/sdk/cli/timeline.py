"""Draw the spans and metrics of all ranks as one trace for Perfetto, from OTLP JSON lines files."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nemo_lens.sdk.cli._otlp_reader import OtlpReader, expand
from nemo_lens.sdk.cli._otlp_spans import Span
from nemo_lens.sdk.cli._progress import ProgressLine
from nemo_lens.sdk.cli._terminal import Terminal, counted
from nemo_lens.sdk.cli._timeline.counters import Counters
from nemo_lens.sdk.cli._timeline.output import OutputError, check_output, is_stream, open_output
from nemo_lens.sdk.cli._timeline.picture import Picture
from nemo_lens.sdk.cli._timeline.profile.profiler import Profiles, expand_profiles
from nemo_lens.sdk.cli._timeline.profile.spool import ProfileSpool
from nemo_lens.sdk.cli._timeline.spool import Spool
from nemo_lens.sdk.cli._timeline.summary.command import add_arguments, contradiction, print_summary, read_table
from nemo_lens.sdk.cli._timeline.summary.span_table import SpanTable
from nemo_lens.sdk.cli._timeline.temporary_database import SpoolFullError
from nemo_lens.sdk.cli._timeline.viewer import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

DEFAULT_OUT = "timeline.json"
WRONG_ARGUMENTS = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``nemo-lens timeline``."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="OTLP JSON lines, plain or gzip; a directory stands for the *.jsonl and *.jsonl.gz files in it, "
        "- for the standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="the trace, compressed when the name ends in .gz; - for the standard output "
        f"(default: {DEFAULT_OUT}; with --summary none)",
    )
    parser.add_argument(
        "--with-profiler",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="traces of the PyTorch profiler of the same ranks, plain or gzip, drawn below the spans; a directory "
        "stands for the *.pt.trace.json and *.pt.trace.json.gz files in it",
    )
    add_arguments(parser)
    parser.add_argument(
        "--open",
        action="store_true",
        help="serve the trace on loopback and open it in the browser, until Ctrl-C; needs nemo-lens-sdk[view]",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress and no closing line")


def run(arguments: argparse.Namespace) -> int:
    """Draw the picture; return 1 when there was nothing to draw or it could not be written."""
    wrong = contradiction(arguments)
    if wrong:
        _report(f"error: {wrong}")
        return WRONG_ARGUMENTS
    if arguments.open:
        return _draw_and_show(arguments)
    return _draw(arguments)


def _draw_and_show(arguments: argparse.Namespace) -> int:
    if arguments.output == "-":
        _report("error: --open shows a file: -o takes one here")
        return WRONG_ARGUMENTS
    if arguments.output is None:
        arguments.output = DEFAULT_OUT
    return _draw(arguments) or show(Path(arguments.output), _report)


def _draw(arguments: argparse.Namespace) -> int:
    if arguments.summary:
        return _sum_up(arguments)
    out = DEFAULT_OUT if arguments.output is None else arguments.output
    return draw(arguments.files, out, quiet=arguments.quiet, profiles=arguments.with_profiler)


def _sum_up(arguments: argparse.Namespace) -> int:
    code = 0
    if arguments.output is not None:
        table = SpanTable()
        code = draw(
            arguments.files,
            arguments.output,
            quiet=arguments.quiet,
            table=table,
            profiles=arguments.with_profiler,
        )
    else:
        progress = ProgressLine("timeline", quiet=arguments.quiet)

        def report(text: str) -> None:
            progress.clear()
            _report(text)

        table = read_table(expand(arguments.files, report), report, progress)
    return print_summary(table, _report, step=arguments.step, as_json=arguments.json) or code


def draw(
    paths: Sequence[str | Path],
    out: str,
    *,
    quiet: bool = False,
    table: SpanTable | None = None,
    profiles: Sequence[str] = (),
) -> int:
    """Draw the spans of all files into one trace.

    Args:
        paths: files and directories.
        out: the file to write, ``-`` for standard output.
        quiet: whether progress and the closing line are left out.
        table: takes in the spans, too; the closing line then goes to the standard error.
        profiles: traces of the PyTorch profiler, and directories of them.

    Returns:
        0, or 1 when no span could be read or the trace could not be written.
    """
    progress = ProgressLine("timeline", quiet=quiet)

    def report(text: str) -> None:
        progress.clear()
        _report(text)

    files = expand([str(path) for path in paths], report)
    try:
        traces = expand_profiles(profiles, report)
        check_output(out, [*files, *traces])
        with _ends_in_order(), progress, Spool(_spool_folder(out)) as spool, ExitStack() as stack:
            merged = None
            if traces:
                merged = Profiles(stack.enter_context(ProfileSpool(_spool_folder(out))), report)
                merged.read(traces, progress)
            picture = Picture(spool, merged)
            _read(files, picture, report, progress, table)
            if not picture.ordered:
                return 1
            with open_output(out) as file:
                file.write(
                    b'{"displayTimeUnit":"ms","baseTimeNanoseconds":%d,"traceEvents":[\n' % picture.clock.base_ns
                )
                separator = b""
                for event in picture.events(lambda drawn: progress.bar("drawing", drawn, spool.spans)):
                    file.write(separator)
                    file.write(event)
                    separator = b",\n"
                file.write(b"\n]}\n")
    except (OutputError, SpoolFullError) as error:
        report(str(error))
        return 1
    if not quiet:
        _say_what_is_there(picture, out, sys.stderr if is_stream(out) or table is not None else sys.stdout)
    return 0


def _read(
    files: Sequence[Path],
    picture: Picture,
    report: Callable[[str], None],
    progress: ProgressLine,
    table: SpanTable | None,
) -> None:
    reader = OtlpReader(report)
    # A pipe has no size, and some names are no files at all: the reader says so.
    total = sum(os.path.getsize(path) for path in files if os.path.isfile(path))  # noqa: PTH113, PTH202
    counters = Counters(lambda resource: picture.processes.of(resource).number)
    for number, item in enumerate(reader.read_all(files)):
        if isinstance(item, Span):
            picture.add(item)
            if table is not None:
                table.add(item)
        else:
            for sample in counters.samples(item):
                picture.add_point(*sample)
        if number % 500 == 0:
            progress.bar(f"reading {len(files)} files", reader.bytes_read, total)
    progress.show("sorting")
    picture.finish()
    skipped = [counted(number, f"{signal} line") for signal, number in reader.skipped_lines.items()]
    if picture.spool.duplicates:
        skipped.append(f"{counted(picture.spool.duplicates, 'span')} read twice")
    if picture.without_start:
        skipped.append(f"{counted(picture.without_start, 'span')} without a time")
    if skipped:
        report(f"skipped {', '.join(skipped)}")
    if not picture.ordered or (picture.profiles is not None and not picture.spool.spans):
        report(f"no span found in {counted(len(files), 'file')}")


def _spool_folder(out: str) -> Path | None:
    # Where there is room for the picture there is room for what it is made from; the system's own folder may be memory.
    if is_stream(out) or os.environ.get("TMPDIR"):
        return None
    folder = Path(os.path.realpath(out)).parent
    return folder if os.access(folder, os.W_OK) else None


def _say_what_is_there(picture: Picture, out: str, stream: TextIO) -> None:
    terminal = Terminal(stream)
    parts = [counted(len(picture.ordered), "process", "processes"), counted(picture.tracks, "track")]
    parts.append(counted(picture.spool.spans, "span"))
    arrows = picture.spool.arrows
    if picture.profiles is not None:
        parts.append(counted(picture.profiles.spool.events, "profiler event"))
        arrows += picture.profiles.spool.arrows
    if arrows:
        parts.append(counted(arrows, "arrow"))
    shown = "standard output" if out == "-" else out
    terminal.line(f"{shown}: {', '.join(parts)}; open it in https://ui.perfetto.dev or chrome://tracing")


@contextmanager
def _ends_in_order() -> Iterator[None]:
    """Make SIGTERM, and SIGHUP of a lost connection, exceptions, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # What is ignored, as nohup has it, stays ignored.
    deadly = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in deadly:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        for number in deadly:
            signal.signal(number, signal.SIG_DFL)


def _report(text: str) -> None:
    sys.stdout.flush()  # in order where both streams end up in one place
    Terminal(sys.stderr).line(f"nemo-lens timeline: {text}")
