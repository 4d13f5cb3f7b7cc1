"""Trace a small multi-process training run on this machine and show its tree: no collector, network or torch."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import uuid
from pathlib import Path

from nemo_lens.api import NemoLensConfig, SpanRegistry
from nemo_lens.api._diagnostics import nearest
from nemo_lens.api.config import sdk_disabled
from nemo_lens.sdk.cli import _demo_run
from nemo_lens.sdk.cli._otlp_reader import OtlpReader, expand
from nemo_lens.sdk.cli._progress import ProgressLine
from nemo_lens.sdk.cli._terminal import Terminal
from nemo_lens.sdk.cli._timeline.summary.comparison import MIN_STEPS
from nemo_lens.sdk.cli._timeline.viewer import show
from nemo_lens.sdk.cli.timeline import DEFAULT_OUT, draw
from nemo_lens.sdk.cli.tree import print_trees

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RANKS = (3, 64)
_STEPS = (1, 1000)
_WRONG_ARGUMENTS = 2
_SLOW_RUN = "nemo-lens-demo-slow"
# Steps of all ranks together. What is more is a tree of hundreds of lines, with what to do next at its far end.
_MAX_TREE_STEPS = 30

# The demo is a run of its own: what it is started in must not become its parent.
_CONTEXT_VARIABLES = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``nemo-lens demo``."""
    parser.add_argument(
        "--span-groups",
        type=_span_groups,
        default="default",
        metavar="SPEC",
        help=f"what to trace, a comma list of {_known_names()} (default: %(default)s)",
    )
    parser.add_argument(
        "--ranks", type=_whole_number(*_RANKS), default=3, metavar="N", help="worker processes (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=_whole_number(*_STEPS), default=3, metavar="N", help="steps of each (default: %(default)s)"
    )
    parser.add_argument(
        "--slow-rank",
        type=_whole_number(0, _RANKS[1] - 1),
        metavar="RANK",
        help="make one rank slow, for timeline --summary to find; with 20 steps or more",
    )
    parser.add_argument(
        "--out",
        type=_empty_folder,
        metavar="FOLDER",
        help="where the files go, new or empty (default: ./nemo-lens-demo-RUN)",
    )
    parser.add_argument(
        "--open",
        action="store_true",
        help="draw the run and open the picture in the browser, until Ctrl-C; needs nemo-lens-sdk[view]",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; return 1 when it could not run or nothing was recorded."""
    if sdk_disabled():
        _complain("OTEL_SDK_DISABLED=true switches all telemetry off: unset it to see the demo")
        return 1
    if arguments.slow_rank is not None and arguments.slow_rank >= arguments.ranks:
        _complain(f"error: argument --slow-rank: there are only ranks 0 to {arguments.ranks - 1}")
        return _WRONG_ARGUMENTS
    run_id = uuid.uuid4().hex[:12]
    out: Path = arguments.out or Path(f"nemo-lens-demo-{run_id}")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _complain(f"{out} cannot be created: {error.strerror or error}")
        return 1
    folder = str(out.absolute()).replace("{", "{{").replace("}", "}}")
    config = NemoLensConfig(
        enabled=True,
        service_name="nemo-lens-demo",
        span_groups=arguments.span_groups,
        exporter="file",
        file_path=f"{folder}/{{signal}}-rank{{rank}}-{{pid}}.jsonl",
        run_id=run_id,
    )
    progress = _Progress(arguments.ranks, arguments.steps)
    try:
        with _own_environment(), progress:
            _demo_run.launch(config, arguments.ranks, arguments.steps, progress.report, arguments.slow_rank)
    except (_demo_run.RunFailedError, ValueError) as error:
        _complain(str(error))
        with contextlib.suppress(OSError):
            out.rmdir()  # nothing was recorded, when it is empty
        if out.exists():
            _complain(f"what was recorded until then: nemo-lens tree {_shown(out)}")
        return 1
    if not _show_spans(out, small=arguments.ranks * arguments.steps <= _MAX_TREE_STEPS):
        _complain("no span was recorded: look for OTEL_ variables in the environment, OTEL_TRACES_SAMPLER for one")
        return 1
    _say_what_next(out, compares=arguments.slow_rank is not None and arguments.steps >= MIN_STEPS)
    if arguments.open:
        picture = out / DEFAULT_OUT
        sys.stdout.write("\n")
        return draw([out], str(picture), quiet=True) or show(picture, _complain)
    return 0


def _show_spans(out: Path, *, small: bool) -> bool:
    """Print the tree of a small run, else how many spans there are. Return whether there are any."""
    if small:
        return print_trees([out], quiet=True) == 0
    spans = sum(1 for _ in OtlpReader(_complain).read(expand([str(out)], _complain)))
    if spans:
        Terminal(sys.stdout).line(f"{spans} spans, too many to show here: nemo-lens tree {_shown(out)}")
    return spans > 0


def _say_what_next(out: Path, *, compares: bool) -> None:
    terminal = Terminal(sys.stdout)
    shown = _shown(out)
    summary = f"nemo-lens timeline --summary {shown if compares else _SLOW_RUN}"
    if not compares:
        summary = f"nemo-lens demo --slow-rank 1 --steps 20 --out {_SLOW_RUN} && {summary}"
    count = len(list(out.iterdir()))
    terminal.line()
    terminal.line(f"{terminal.paint('Files:', 'bold')} {shown} ({count} files of OTLP JSON lines, spans and metrics)")
    terminal.line(f"{terminal.paint('The traced program:', 'bold')} {_demo_run.__file__}")
    terminal.line(terminal.paint("Next:", "bold"))
    for command, text in (
        (f"nemo-lens timeline --open -o {shown}/{DEFAULT_OUT} {shown}", "the same as a picture, in the browser"),
        (summary, "which rank is slow, and in which phase"),
        (f"nemo-lens tree --attributes {shown}", "the same with attributes and events"),
        ("nemo-lens demo --span-groups detailed", "more spans; minimal has fewer"),
        ("nemo-lens groups", "what the libraries installed here can trace"),
        ("NEMO_LENS_ENABLED=1 NEMO_LENS_EXPORTER=file python train.py", "the same for a program that uses NeMo Lens"),
    ):
        terminal.line(f"  {command}")
        terminal.line(f"      {terminal.paint(text, 'dim')}")


def _shown(out: Path) -> str:
    return shlex.quote(str(out) if out.is_absolute() else f".{os.sep}{out}")


class _Progress:
    """How far the run is, on standard error: one line rewritten on a terminal, a line for each rank elsewhere."""

    def __init__(self, ranks: int, steps: int) -> None:
        self._ranks = ranks
        self._all_steps = ranks * steps
        self._steps = 0
        self._done = 0
        self._line = ProgressLine("demo")

    def __enter__(self) -> None:
        self._line.say(f"starting {self._ranks} ranks")

    def __exit__(self, *exc_info: object) -> None:
        self._line.clear()

    def report(self, report: _demo_run.Report) -> None:
        """Take in the report of a rank."""
        if report.loss is None:
            self._steps += 1
        else:
            self._done += 1
            if not self._line.is_live:
                self._line.say(f"rank {report.rank} done, {self._done} of {self._ranks}")
        self._line.show(f"step {self._steps} of {self._all_steps}, {self._done} of {self._ranks} ranks done")


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    # The run puts its settings and its trace context there for its workers.
    before = dict(os.environ)
    for name in _CONTEXT_VARIABLES:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _known_names() -> str:
    return ", ".join(["all", *SpanRegistry.presets("demo"), *sorted(SpanRegistry.groups("demo"))])


def _span_groups(text: str) -> str:
    enabled, unknown = SpanRegistry.resolve(text)
    if unknown:
        known = ["all", *SpanRegistry.presets("demo"), *SpanRegistry.groups("demo")]
        hints = ", ".join(f"{name!r}{nearest(name, known)}" for name in unknown)
        raise argparse.ArgumentTypeError(f"no group or preset of the demo: {hints} (there are {_known_names()})")
    if not enabled:
        raise argparse.ArgumentTypeError(f"{text!r} names no group: expected a comma list of {_known_names()}")
    return text


def _whole_number(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from {least} to {most}")
        return number

    return parse


def _empty_folder(text: str) -> Path:
    path = Path(text)
    try:
        if text and path.is_dir():
            if any(path.iterdir()):
                raise argparse.ArgumentTypeError(f"{text!r} is not empty: expected a new or an empty folder")
        elif not text or os.path.lexists(path):
            raise argparse.ArgumentTypeError(f"{text!r} is no folder: expected a new or an empty one")
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error.strerror or error}") from None
    return path


def _complain(text: str) -> None:
    Terminal(sys.stderr).line(f"nemo-lens demo: {text}")
